"""FedNova: normalization, and clients of unequal numbers of steps."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedwin import local, losses, testing
from fedwin.algorithms.fednova import counter
from tests import golden_problems as golden
from tests.algorithms.identities import META, same
from tests.refusals import refused


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("rho,mu", [(0.0, 0.0), (0.9, 0.0), (0.5, 0.0), (0.0, 1.1)])
@pytest.mark.parametrize("steps", [1, 5])
def test_fednovas_norm_is_the_sum_of_the_coefficients_of_the_gradients(rho, mu, steps):
    # A linear loss whose j-th gradient is the j-th unit vector: (x - y) / lr is made of their coefficients.
    lr, optimizer = 0.1, optax.sgd(1.0, rho or None)
    loss = lambda params, batch, key, info: losses.masked_mean(batch["e"] @ params["x"], batch)
    p = testing.problem(
        {"x": jnp.ones(steps)},
        [{"e": np.eye(steps)}],
        loss,
        [[0]],
        lr=lr,
        batch_size=1,
        shuffle=False,
        optimizer=optimizer,
    )
    carry, on_step = counter(optimizer, mu)
    y = p.solve(p.variables.params, p.client(0), local.proximal(mu) if mu else local.sgd, carry=carry, on_step=on_step)
    coefficients = (p.variables.params["x"] - y.params["x"]) / lr
    later = np.arange(steps)[::-1]  # steps that come after the j-th
    same(coefficients, (1 - lr * mu) ** later if mu else [sum(rho**k for k in range(l + 1)) for l in later])
    same(-y.carry[0], np.abs(coefficients).sum())


@pytest.mark.usefixtures("double")
def test_client_optimizers_are_counted_by_fednova():
    p = golden.problem_b(META, optimizer=optax.sgd(1.0, 0.9), equal=True)
    ours, plain = (testing.trajectory(p, p.build(name), 4)[-1].params for name in ("fednova", "fedavg"))
    same(golden.vector(ours), golden.vector(plain))


@pytest.mark.parametrize("name", ["adam", "adamw", "adagrad", "rmsprop", "yogi"])
def test_fednova_needs_sgd_on_the_clients(name):
    p = testing.classification(optimizer=getattr(optax, name)(1.0))
    for choice in ("fednova", "fednova:mu=0.5"):
        refused("clients must use SGD", p.build, choice)


def test_fednova_takes_no_proximal_term_with_momentum():
    p = testing.classification(optimizer=optax.sgd(1.0, 0.5))
    refused("momentum", p.build, "fednova:mu=0.5")
