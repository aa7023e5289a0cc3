"""Rounds at client learning rate 0: finite results and correct limits."""

import jax
import numpy as np
import pytest

from fedwin import testing
from tests.problems import built

CHOICES = """
fedcm fedadc fedadc:beta_local=1.0 fednova:mu=0.5 scaffold fedsam scaffold_m fedgloss fedsmoo qffl:q=2 agnostic
"""


@pytest.mark.parametrize("choice", CHOICES.split())
def test_at_client_rate_zero_nothing_breaks_or_moves(choice):
    p = testing.classification(lr=0.0, shuffle=False)
    run = testing.trajectory(p, p.build(choice), 2)[-1]
    jax.tree.map(np.testing.assert_array_equal, run.params, p.variables.params)
    for leaf in jax.tree.leaves((run.state, run.table)):
        assert np.isfinite(leaf).all()


def cycled(choice, second):
    """Four rounds whose client rate falls to `second` in every other round."""
    p = testing.quadratic([1.0, 2.0], [3.0, -2.0], [1.0], steps=2, lr=0.1, schedule=[[0, 1]])
    return testing.trajectory(p, built(p, choice, f"swa:start=0,cycle=2,second_lr={second},evaluate=model"), 4)


def test_fedcm_at_rate_zero_is_the_limit_of_small_rates():
    zero, small = ([float(run.params["x"][0]) for run in cycled("fedcm:alpha=0.4", rate)] for rate in (0.0, 1e-6))
    np.testing.assert_allclose(zero, small, atol=1e-4)
    # The momentum of round 0, (1 - alpha) times its step, moves round 1.
    np.testing.assert_allclose(zero[1] - zero[0], 0.6 * (zero[0] - 1.0), rtol=1e-5)


@pytest.mark.parametrize("choice", ["fedadc:beta_global=0.6", "fedavg_m:beta=0.3"])
def test_at_rate_zero_a_server_keeps_its_momentum(choice):
    runs = cycled(choice, 0.0)
    for name in ("params", "state"):
        before, after, later = (float(getattr(run, name)["x"][0]) for run in runs[:3])
        assert before == after != later
