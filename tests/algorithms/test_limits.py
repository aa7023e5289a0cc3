"""Limits in which methods coincide, and identities of single methods."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedwin import testing, tree
from fedwin.algorithms.fedsam import perturbation
from tests.algorithms.identities import FULL, T, differ, models, runs, same

pytestmark = pytest.mark.usefixtures("double")


# Both sides of most other identities are compared with golden values, or with plain numpy.
EQUAL = [
    ("adabest:mu=0,beta=0.8", "fedavgm:beta=0.8,nesterov=true", "partial"),
    ("adabest:mu=0,beta=0.8", "fedopt:optimizer=momentum,momentum=0.8,nesterov=true", "partial"),
    ("fedavgm:beta=0.9", "fedopt:optimizer=momentum", "partial"),
    ("fedopt:optimizer=adam,server_lr=0.1,eps=0.1,bias_correction=false", "fedadam:server_lr=0.1,tau=0.1", "partial"),
    ("fedopt:optimizer=yogi,server_lr=0.1,eps=0.1,bias_correction=false", "fedyogi:server_lr=0.1,tau=0.1", "partial"),
    ("fedhbm:first=random", "fedhbm:first=shared", "partial"),  # the initializer returns x^0 here
    ("fednova:mu=0.3", "fedprox:mu=0.3", "equal"),
    ("fedgloss:rho=0,local_rho=0,beta=2.5", "feddyn:alpha=0.4", "partial"),
    ("fedsmoo:rho=0,beta=2.5", "feddyn:alpha=0.4", "partial"),
    ("amplified_scaffold:period=1,gamma=0.7", "scaffold:server_lr=0.7", "partial"),
]


@pytest.mark.parametrize("one,other,variant", EQUAL)
def test_equal(one, other, variant):
    same(models(one, variant), models(other, variant))


def test_fedcm_is_ghb_with_a_smaller_client_rate():
    same(models("fedcm:alpha=0.4,server_lr=0.5"), models("ghb:tau=1,beta=1.2,server_lr=0.5", "slow"))


def test_momentum_off_the_server_rate_is_scaled_by_it():
    # GHB's recursion needs eta = 1; FedACG's m is the actual displacement for every eta.
    first, last = runs("fedacg:lam=0.5,server_lr=0.5", rounds=2)
    jax.tree.map(same, tree.sub(last.params, first.params), last.state)


def test_ghb_in_a_run_of_at_most_tau_rounds_is_fedavg():
    p = testing.quadratic(np.ones(5), range(5), [9.0], steps=1, lr=0.1, schedule=[[0], [1]], num_rounds=4)
    ours, plain = (testing.trajectory(p, p.build(choice), 4)[-1].params for choice in ("ghb", "fedavg"))
    same(ours["x"], plain["x"])


@pytest.mark.parametrize("first", ["shared", "random"])
def test_a_given_anchor_counts_by_the_participation_at_first_and_by_its_age_later(first):
    """Client 1 of three takes part in rounds 1 and 3 (0-based): factors 1/3 and 1/2 of x - r and x - a."""
    p = testing.quadratic(
        [1.0] * 3, [2.0, -1.0, 4.0], [0.5], steps=2, lr=0.1, schedule=[[0], [1], [2], [1]],
        init_fn=lambda key: {"x": jax.random.normal(key, (1,), float)},
    )  # fmt: skip
    algorithm = p.build(f"local_ghb:beta=0.6,first={first},scale=tau_i")
    table = np.asarray(p.start(algorithm).table.anchor["x"])
    x = [0.5, *(float(run.params["x"][0]) for run in testing.trajectory(p, algorithm, 4))]

    def trained(start, momentum):
        y = start
        for _ in range(2):
            y = y - 0.1 * (y + 1.0) + 0.6 / 2 * momentum
        return y

    same(x[2], trained(x[1], (x[1] - table[1, 0]) / 3))
    same(x[4], trained(x[3], (x[3] - x[1]) / 2))
    if first == "random":  # in round 0 already
        assert abs(table[0, 0] - 0.5) > 1e-3


def test_mime_with_one_hessian_is_centralized_gradient_descent():
    centers, lr, steps = np.array([1.0, -1.0, 0.5]), 0.1, 3
    p = testing.quadratic([2.0] * 3, centers, [0.3], steps=steps, lr=lr, schedule=FULL)
    x = 0.3
    for run in testing.trajectory(p, p.build("mime"), T):
        for _ in range(steps):
            x = x - lr * 2 * (x - centers.mean())
        same(run.params["x"], [x])


def test_sams_perturbation_has_norm_rho_and_asam_without_weights_is_sam():
    g = {"bias": jnp.array([3.0, -4.0])}
    same(tree.norm(perturbation(g, g, 0.3)), 0.3)
    same(perturbation(g, g, 0.3, 0.2)["bias"], perturbation(g, g, 0.3)["bias"])
    b = jnp.array([[3.0, -4.0]])  # of LoRA
    same(perturbation({"b": b}, {"b": b}, 0.3, 0.2)["b"], perturbation({"w": b}, {"w": b}, 0.3, 0.2)["w"])
    w = {"scale": jnp.array([3.0, -4.0])}
    differ(perturbation(w, w, 0.3, 0.2)["scale"], perturbation(w, w, 0.3)["scale"])
