"""Group normalization, XLA's and as compiled calls, against flax's in every kind of derivative."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from fedwin.models.convolution import onednn
from fedwin.models.group_norm import group_norm
from fedwin.testing import compile_options
from tests.refusals import refused

ours = functools.partial(group_norm, groups=2, epsilon=1e-5)


def theirs(x, scale, bias, add=0.0, *, relu):
    y = add + nn.GroupNorm(2, epsilon=1e-5).apply({"params": {"scale": scale, "bias": bias}}, x)
    return nn.relu(y) if relu else y


def both_modes(function, values, towards):
    y, back = jax.vjp(function, *values)
    return y, back(towards), jax.jvp(function, values, values)[1]


def second(function, values, towards):
    gradient = jax.grad(lambda values: (towards * jnp.sin(function(*values))).sum())
    squares = lambda values: sum(jnp.square(g).sum() for g in gradient(values))
    return jax.jvp(gradient, (values,), (values,))[1], jax.grad(squares)(values)


# Positions that fill no vector, or are summed side by side, and none at all.
@pytest.mark.parametrize(
    "shape, added, relu", [((5, 3, 3, 6), True, True), ((3, 4, 8, 16), False, True), ((2, 8), True, False)]
)
@pytest.mark.parametrize("switch", ["on", "off"])
def test_values_and_derivatives_equal_flaxs(shape, added, relu, switch, use_onednn, monkeypatch):
    monkeypatch.setenv(onednn.SWITCH, switch)
    keys = jax.random.split(jax.random.key(0), 5)
    *values, towards = (
        1 + jax.random.normal(k, s) for k, s in zip(keys, (shape, shape[-1:], shape[-1:], shape, shape))
    )
    for derivatives in (both_modes, second) if shape[-1] == 6 else (both_modes,):
        call = lambda function: jax.jit(
            lambda *given: derivatives(functools.partial(function, relu=relu), *given),
            compiler_options=compile_options(),
        )
        arguments = tuple(values[: 3 + added]), towards
        assert ("_norm" in call(ours).lower(*arguments).as_text()) == (switch == "on")
        compare = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)
        jax.tree.map(compare, call(ours)(*arguments), call(theirs)(*arguments))


def test_a_group_of_equal_numbers_has_a_variance():
    """The mean of their squares may be below the square of their mean."""
    x = jnp.linspace(1e3, 2e3, 50)[:, None, None] * jnp.ones((50, 5, 6))
    assert np.isfinite(ours(x, jnp.ones(6), jnp.zeros(6))).all()


@pytest.mark.parametrize("scale, add, groups", [((1,), (2, 3, 6), 2), ((6,), (2, 1, 6), 2), ((6,), (2, 3, 6), 4)])
def test_other_shapes_are_refused(scale, add, groups):
    words = "do not divide 6 channels" if groups == 4 else "x, scale, bias .and add. have"
    arrays = map(jnp.ones, ((2, 3, 6), scale, 6, add))
    refused(words, group_norm, *arrays, groups=groups, epsilon=1e-5, error=ValueError)


def test_neither_threads_nor_clients_beside_change_a_bit(use_onednn, monkeypatch):
    x, scale, towards = (
        1 + jax.random.normal(jax.random.key(n), (3, *s)) for n, s in enumerate([(5, 4, 4, 8), (8,), (5, 4, 4, 8)])
    )
    gradient = lambda *values: both_modes(
        functools.partial(ours, relu=True), (values[0], values[1], values[1]), values[2]
    )[:2]
    together = jax.jit(jax.vmap(gradient))(x, scale, towards)
    monkeypatch.setattr(onednn, "threads", lambda: 3)
    alone = jax.jit(lambda *own: gradient(*own))(x[1], scale[1], towards[1])
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a[1], b), together, alone)
