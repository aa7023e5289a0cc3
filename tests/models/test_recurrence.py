"""LSTM with a custom gradient against its definition under automatic differentiation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedwin.models.recurrence import lstm
from fedwin.testing import compile_options

LENGTH, BATCH, SIZE, HIDDEN = 5, 3, 2, 4


def by_definition(x, w_x, w_h, bias):
    """The three equations in a Python loop."""
    h = c = jnp.zeros((x.shape[1], w_h.shape[0]), x.dtype)
    rows = []
    for x_t in x:
        i, g, f, o = jnp.split(x_t @ w_x + h @ w_h + bias, 4, axis=-1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        rows.append(h)
    return jnp.stack(rows)


def arguments(length=LENGTH, leading=()):
    shapes = (length, BATCH, SIZE), (SIZE, 4 * HIDDEN), (HIDDEN, 4 * HIDDEN), (4 * HIDDEN,)
    keys = jax.random.split(jax.random.key(length), 4)
    return [jax.random.normal(key, (*leading, *shape)) for key, shape in zip(keys, shapes, strict=True)]


def values_and_gradients(function, towards, mapped=lambda both: both):
    def both(*arguments):
        h, back = jax.vjp(function, *arguments)
        return h, back(towards)

    return jax.jit(mapped(both), compiler_options=compile_options())


@pytest.mark.parametrize("length", [1, LENGTH])
def test_values_and_gradients_are_those_of_the_definition(length):
    towards = jax.random.normal(jax.random.key(9), (length, BATCH, HIDDEN))
    found, expected = (
        values_and_gradients(function, towards)(*arguments(length)) for function in (lstm, by_definition)
    )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), found, expected)


@pytest.mark.slow
def test_clients_with_weights_of_their_own_are_mapped():
    towards = jnp.ones((LENGTH, BATCH, HIDDEN))
    several = arguments(leading=(3,))
    found = values_and_gradients(lstm, towards, jax.vmap)(*several)
    for k in range(3):
        expected = values_and_gradients(by_definition, towards)(*(a[k] for a in several))
        jax.tree.map(lambda a, b, k=k: np.testing.assert_allclose(a[k], b, rtol=1e-5, atol=1e-5), found, expected)


def test_bfloat16_stays_bfloat16():
    half = [a.astype(jnp.bfloat16) for a in arguments()]
    h, gradients = values_and_gradients(lstm, jnp.ones((LENGTH, BATCH, HIDDEN), jnp.bfloat16))(*half)
    assert h.dtype == jnp.bfloat16 and all(g.dtype == jnp.bfloat16 for g in gradients)
    expected = jax.jit(by_definition, compiler_options=compile_options())(*arguments())
    np.testing.assert_allclose(h.astype(jnp.float32), expected, atol=0.05)
