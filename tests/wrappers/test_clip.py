"""Clipping: bounded steps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedwin import core, testing, tree
from fedwin.wrappers import WRAPPERS
from tests.algorithms.identities import leaves
from tests.problems import SIZES, STEPS, one_round, stepping
from tests.refusals import refused

pytestmark = pytest.mark.usefixtures("double")

NORM = 1.0
BOUNDED = STEPS * np.minimum(1, NORM / np.linalg.norm(STEPS, axis=1))[:, None]


@pytest.mark.parametrize("choice", ["fedavg", "feddyn:alpha=0.1", "fedhbm", "fedgma:threshold=0.8,mode=hard"])
def test_a_clipped_round_is_the_round_of_clients_that_step_less(choice):
    p = stepping(sizes=SIZES)
    clipped, less = one_round(p, choice, f"clip:norm={NORM}"), one_round(stepping(BOUNDED, sizes=SIZES), choice)
    # Server, its state, and what stays with clients: all of it follows from the bounded steps.
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13), clipped[:4], less[:4])
    assert np.abs(leaves(clipped.params) - leaves(one_round(p, choice).params)).max() > 1e-3


def test_a_step_within_the_bound_stays_what_it_is_to_the_bit():
    p = testing.quadratic([1.0, 1.0], [[3.0, 4.0], [0.3, 0.4]], [0.1, 0.7], steps=3, lr=0.1, schedule=[[0, 1]])
    solve = WRAPPERS.build("clip:norm=0.5", p.setting).solver(p.solve)
    model = lambda solve, i: jax.jit(lambda params: solve(params, p.client(i)).params)(p.variables.params)["x"]
    np.testing.assert_array_equal(model(solve, 1), model(p.solve, 1))
    start = p.variables.params["x"]
    assert np.linalg.norm(model(p.solve, 0) - start) > 0.5
    np.testing.assert_allclose(np.linalg.norm(model(solve, 0) - start), 0.5, rtol=1e-12)


def test_a_users_method_says_what_follows_from_the_step():
    def builder(of_step):
        def build(setting, solve):
            def client(params, c):
                y = solve(params, c)
                step = tree.sub(y.params, params)
                return y.update((core.mean_step(step, c.size), of_step(tree.map(jnp.abs, step))))

            return core.algorithm(client, lambda params, state, total, round: (tree.add(params, total[0].value), state))

        return build

    p = testing.classification()
    clip = WRAPPERS.build("clip:norm=1.0", p.setting)
    testing.trajectory(p, p.build(builder(core.DerivedFromStep), clip), 1)
    refused("send 1, which", testing.trajectory, p, p.build(builder(lambda x: x), clip), 1)
