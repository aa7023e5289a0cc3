"""FedNova: normalization, and clients of unequal numbers of steps."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedwin import local, losses, testing
from fedwin.algorithms.fednova import counter
from tests.algorithms.identities import same
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


@pytest.mark.parametrize(
    "optimizer, choice, words",
    [(optax.adam(1.0), "fednova", "clients must use SGD"), (optax.sgd(1.0, 0.5), "fednova:mu=0.5", "momentum")],
)
def test_what_fednova_does_not_count_is_refused(optimizer, choice, words):
    refused(words, testing.classification(optimizer=optimizer).build, choice)
