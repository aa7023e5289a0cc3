"""LSTM with a custom gradient against its definition under automatic differentiation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedwin.models.convolution import onednn
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


def arguments(length=LENGTH):
    shapes = (length, BATCH, SIZE), (SIZE, 4 * HIDDEN), (HIDDEN, 4 * HIDDEN), (4 * HIDDEN,)
    keys = jax.random.split(jax.random.key(length), 4)
    return [jax.random.normal(key, shape) for key, shape in zip(keys, shapes, strict=True)]


def values_and_gradients(function, towards):
    def both(*arguments):
        h, back = jax.vjp(function, *arguments)
        return h, back(towards)

    return jax.jit(both, compiler_options=compile_options())


@pytest.mark.parametrize("length", [1, LENGTH])
def test_values_and_gradients_are_those_of_the_definition(length):
    towards = jax.random.normal(jax.random.key(9), (length, BATCH, HIDDEN))
    found, expected = (
        values_and_gradients(function, towards)(*arguments(length)) for function in (lstm, by_definition)
    )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), found, expected)


def test_bfloat16_stays_bfloat16():
    half = [a.astype(jnp.bfloat16) for a in arguments()]
    h, gradients = values_and_gradients(lstm, jnp.ones((LENGTH, BATCH, HIDDEN), jnp.bfloat16))(*half)
    assert h.dtype == jnp.bfloat16 and all(g.dtype == jnp.bfloat16 for g in gradients)
    expected = jax.jit(by_definition, compiler_options=compile_options())(*arguments())
    np.testing.assert_allclose(h.astype(jnp.float32), expected, atol=0.05)


@pytest.mark.parametrize("threads", [1, 3])
def test_the_compiled_loops_are_those_of_xla(threads, use_onednn, monkeypatch):
    """With hidden units, rows and clients that fill neither vectors nor blocks, to rounding."""
    monkeypatch.setattr(onednn, "threads", lambda: threads)
    keys = jax.random.split(jax.random.key(0), 5)
    shapes = [(4, 20, 3), (3, 4 * 21), (21, 4 * 21), (4 * 21,), (4, 20, 21)]
    *arguments, towards = (jax.random.normal(key, (2, *shape)) / 3 for key, shape in zip(keys, shapes, strict=True))

    def both(x, w_x, w_h, bias, towards):
        h, back = jax.vjp(lstm, x, w_x, w_h, bias)
        return lstm(x, w_x, w_h, bias), h, back(towards)

    own, shared = (0,) * 5, (0, None, None, None, 0)
    for axes in (own, shared):
        operands = [a if axis == 0 else a[0] for a, axis in zip((*arguments, towards), axes, strict=True)]
        monkeypatch.setenv(onednn.SWITCH, "off")
        expected = jax.jit(jax.vmap(both, axes))(*operands)
        monkeypatch.setenv(onednn.SWITCH, "on")
        mapped = jax.jit(jax.vmap(lambda *a: both(*a), axes))
        assert "_lstm" in mapped.lower(*operands).as_text()
        found = mapped(*operands)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), found, expected)
        one = jax.jit(lambda *a: lstm(*a))
        for k in range(2):
            alone = one(*(a[k] if axis == 0 else a for a, axis in zip(operands[:4], axes[:4], strict=True)))
            np.testing.assert_allclose(found[0][k], alone, rtol=1e-6, atol=1e-6)


def test_derivatives_of_the_gradient_are_those_of_the_loops(use_onednn, monkeypatch):
    operands = arguments()
    loss = lambda w_h: jnp.square(lstm(*operands[:2], w_h, operands[3])).sum()
    product = lambda w_h: jax.jvp(jax.grad(loss), (w_h,), (w_h,))[1]
    found = jax.jit(lambda w_h: product(w_h))(operands[2])
    monkeypatch.setenv(onednn.SWITCH, "off")
    np.testing.assert_allclose(found, jax.jit(lambda w_h: product(w_h))(operands[2]), rtol=1e-4, atol=1e-4)
