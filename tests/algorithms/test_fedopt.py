"""FedOpt's adaptive servers against NumPy, FedAdam, FedYogi and FedAdagrad."""

import jax
import numpy as np
import pytest

from fedwin import core, testing, tree
from tests import golden_problems as golden
from tests.algorithms.identities import META, problem

# One client that takes one step d = lr (b - x) in each of three coordinates.
CENTERS, START, LR = np.array([[3.0, -1.0, 0.5]]), np.array([1.0, 2.0, 0.5]), 0.1


def xs(choice, rounds=3):
    p = testing.quadratic([1.0], CENTERS, START, steps=1, lr=LR, schedule=[[0]])
    return [np.asarray(run.params["x"]) for run in testing.trajectory(p, p.build(choice), rounds)]


def by_hand(step, rounds=3):
    """`step(d) -> x_new - x`, fed with the client's step."""
    x, out = START, []
    for _ in range(rounds):
        x = x + step(LR * (CENTERS[0] - x))
        out.append(x)
    return out


def test_fedopts_adagrad_starts_at_zero_with_eps_outside_the_root():
    v = np.zeros(3)

    def step(d):
        nonlocal v
        v = v + d**2
        return 0.1 * d / (np.sqrt(v) + 0.01)

    np.testing.assert_allclose(xs("fedopt:optimizer=adagrad,server_lr=0.1"), by_hand(step), rtol=1e-5)


@pytest.mark.parametrize("name", ["adam", "yogi"])
def test_fedopt_without_bias_correction_is_the_papers_rule(name):
    plain = xs(f"fedopt:optimizer={name},server_lr=0.1,eps=0.1,bias_correction=false")
    np.testing.assert_allclose(plain, xs(f"fed{name}:server_lr=0.1,tau=0.1"), rtol=1e-6)
    assert np.abs(plain[0] - xs(f"fedopt:optimizer={name},server_lr=0.1,eps=0.1")[0]).max() > 0.01


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("choice", ["fedadam", "fedyogi", "fedadagrad"])
def test_an_adaptive_server_without_messages_does_not_move(choice):
    p = problem("partial")
    algorithm = p.build(choice)
    params = p.variables.params
    nothing = {"delta": core.mean(tree.zeros_like(params), 1.0)}
    new, _ = algorithm.phases[0].server(params, algorithm.init(params, jax.random.key(0)), nothing, 0)
    assert (golden.vector(new) == META["theta0"]).all()
