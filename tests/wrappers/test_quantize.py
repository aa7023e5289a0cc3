"""Quantization: levels, unbiasedness, bytes, and rejected combinations."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedwin import core, testing
from fedwin.engine.communication import communication
from fedwin.wrappers import WRAPPERS
from fedwin.wrappers.compression import stochastic
from tests.algorithms.identities import leaves
from tests.wrappers.test_wrappers import built

VALUES = np.array([0.7, -0.31, 0.05, 0.0, -1.3, 1.1], np.float32)


@pytest.mark.parametrize("bits", [2, 5])
def test_the_mean_is_the_value_and_the_variance_that_of_the_rounding(bits):
    draws = 3000
    keys = jax.random.split(jax.random.key(3), draws)
    drawn = np.asarray(jax.vmap(lambda key: stochastic(jnp.asarray(VALUES), key, bits))(keys), float)
    gap = 1.3 / (2 ** (bits - 1) - 1)
    steps = drawn / gap
    np.testing.assert_allclose(steps, np.round(steps), atol=1e-4)
    assert np.abs(np.round(steps)).max() == 2 ** (bits - 1) - 1
    fraction = VALUES.astype(float) / gap - np.floor(VALUES.astype(float) / gap + 1e-6)
    variance = np.maximum(gap**2 * fraction * (1 - fraction), 0)
    error = np.abs(drawn.mean(0) - VALUES)
    assert (error <= 5 * np.sqrt(variance / draws) + 1e-5).all(), error
    # The sample variance of two values: within 8 % at this number of draws where both are frequent.
    frequent = fraction * (1 - fraction) > 0.1
    np.testing.assert_allclose(drawn.var(0)[frequent], variance[frequent], rtol=0.08)


def test_zeros_stay_zeros_and_a_value_that_is_not_finite_shows():
    key = jax.random.key(0)
    assert not np.asarray(stochastic(jnp.zeros(5), key, 4)).any()
    assert np.isnan(np.asarray(stochastic(jnp.array([1.0, jnp.inf]), key, 4))).any()


@pytest.mark.slow
def test_clients_draw_for_themselves_and_in_every_round():
    p = testing.quadratic([0.0] * 3, np.zeros((3, 1)), [0.0], steps=1, lr=1.0, schedule=[range(3)])
    p = p._replace(variables=p.variables._replace(params={"x": jnp.zeros(64)}))
    constant = jnp.linspace(0.1, 1.0, 64)

    def algorithm(setting, solve):
        return core.algorithm(
            lambda params, c: core.Update({"mine": constant * (c.id == 0), "other": constant * (c.id == 1)}),
            lambda params, state, total, round: (params, total),
            init=lambda params: {"mine": constant, "other": constant},
        )

    quantize = WRAPPERS.build("quantize:bits=2", p.setting)
    runs = testing.trajectory(p, p.build(algorithm, quantize), 2)
    received = [np.asarray(run.state[name]) for run in runs for name in ("mine", "other")]
    for a in range(4):
        assert set(np.round(np.unique(received[a]), 6)) <= {0.0, 1.0}
        assert not any((received[a] == received[b]).all() for b in range(a))


@pytest.mark.parametrize("choice", ["scaffold", "mime"])
def test_bytes_are_those_of_bits_and_scales(choice):
    """Of both, clients send two models."""
    p = testing.classification()
    params, stats = p.variables
    sizes = [leaf.size for leaf in jax.tree.leaves(params)]
    plain = communication(p.build(choice), params, p.store, p.n_max, stats)
    for bits in (3, 8):
        ours = communication(built(p, choice, f"quantize:bits={bits}"), params, p.store, p.n_max, stats)
        assert ours.down == plain.down
        sent = sum(min(math.ceil(n * bits / 8) + 4, 4 * n) for n in sizes)
        assert ours.up - plain.up == 2 * (sent - 4 * sum(sizes))


def test_leaves_that_would_not_shrink_are_sent_as_they_are():
    p = testing.quadratic([1, 3], [0, 4], [1.0], steps=5, lr=0.1, schedule=((0, 1),))
    ours, plain = (testing.trajectory(p, built(p, "fedavg", *t), 3)[-1] for t in (["quantize:bits=8"], []))
    np.testing.assert_array_equal(leaves(ours.params), leaves(plain.params))
