"""Every algorithm with clients that take a share of their local steps."""

import jax
import numpy as np
import pytest

from fedwin import engine, local, testing
from fedwin.algorithms import ALGORITHMS
from fedwin.engine.strategy import Strategy
from fedwin.testing.problems import compile_options

ROUNDS = 3


def rounds(p, algorithm, strategy, works):
    """Returns the state after some rounds in a compiled loop, all clients of the problem in each."""
    count = p.setting.num_clients
    ids = np.tile(np.arange(count, dtype=np.int32), (ROUNDS, 1))
    cohorts = engine.Cohort.of(ids, work=works)
    dispatch = engine.Dispatch(algorithm, {}, strategy, compiler_options=compile_options())
    run, _, _ = dispatch(p.start(algorithm), p.store, cohorts, (), ROUNDS, np.zeros(ROUNDS, bool), n_max=p.n_max)
    return [np.asarray(leaf) for leaf in jax.tree.leaves(run._replace(key=()))]


@pytest.mark.slow
@pytest.mark.parametrize("choice", ALGORITHMS.instances())
def test_vmapped_clients_with_shares_of_their_steps_equal_a_loop(choice):
    p = testing.classification(shuffle=False, num_rounds=ROUNDS)
    algorithm = p.build(choice)
    works = local.exact_share(np.random.default_rng(0).random((ROUNDS, p.setting.num_clients)))
    some, vmapped = (rounds(p, algorithm, strategy, works) for strategy in (Strategy(1), Strategy(None)))
    for one, other in zip(some, vmapped, strict=True):
        assert np.isfinite(one).all()
        np.testing.assert_allclose(one, other, rtol=2e-3, atol=2e-4)
    full, plain = (rounds(p, algorithm, Strategy(1), work) for work in (np.ones_like(works), None))
    for one, other in zip(full, plain, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    assert any(np.abs(one - other).max() > 1e-4 for one, other in zip(some, full, strict=True))
