"""FedOpt's adaptive servers against NumPy, FedAdam, FedYogi and FedAdagrad."""

import numpy as np
import pytest

from fedwin import testing

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


@pytest.mark.parametrize(
    "choice, v0",
    [("fedopt:optimizer=adagrad,server_lr=0.1", 0.0), ("fedadagrad:server_lr=0.1,tau=0.01,v0=0.25", 0.25)],
)
def test_adagrad_starts_at_v0_with_eps_outside_the_root(choice, v0):
    v = np.full(3, v0)

    def step(d):
        nonlocal v
        v = v + d**2
        return 0.1 * d / (np.sqrt(v) + 0.01)

    np.testing.assert_allclose(xs(choice), by_hand(step), rtol=1e-5)


@pytest.mark.parametrize("name", ["adam", "yogi"])
def test_fedopt_without_bias_correction_is_the_papers_rule(name):
    plain = xs(f"fedopt:optimizer={name},server_lr=0.1,eps=0.1,bias_correction=false")
    np.testing.assert_allclose(plain, xs(f"fed{name}:server_lr=0.1,tau=0.1"), rtol=1e-6)
    assert np.abs(plain[0] - xs(f"fedopt:optimizer={name},server_lr=0.1,eps=0.1")[0]).max() > 0.01
