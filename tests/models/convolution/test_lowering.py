"""Replacement of convolutions in external functions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from fedwin.models.convolution import lower_convolutions
from tests.models.networks.common import images

NUMBERS = ("NHWC", "HWIO", "NHWC")


def convolution(x, w):
    return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=NUMBERS)


@pytest.mark.parametrize("name", ["jit", "remat", "scan", "cond", "while", "relu unchanged"])
def test_rewriting_reaches_inside(name):
    x, w = images(2, 6, 2), jnp.asarray(np.random.default_rng(1).standard_normal((3, 3, 2, 2)), jnp.float32)
    function = {
        "jit": jax.jit(convolution),
        "remat": jax.checkpoint(convolution),
        "scan": lambda x, w: lax.scan(lambda c, _: (jnp.tanh(convolution(c, w)), None), x, None, length=2)[0],
        "cond": lambda x, w: lax.cond(x.sum() > 0, convolution, lambda x, w: x, x, w),
        "while": lambda x, w: lax.fori_loop(0, jnp.int32(2), lambda i, c: jnp.tanh(convolution(c, w)), x),
        "relu unchanged": lambda x, w: jax.nn.relu(convolution(x, w)),
    }[name]
    lowered = lower_convolutions(function)
    np.testing.assert_allclose(lowered(x, w), function(x, w), rtol=1e-4, atol=1e-5)
    batched = lambda f: jax.vmap(f)(jnp.stack([x, x]), jnp.stack([w, 2 * w]))
    assert "conv_general_dilated" not in str(jax.make_jaxpr(lambda: batched(lowered))())
    if name != "while":
        gradient = lambda f: jax.grad(lambda w: jnp.sin(f(x, w)).sum())(w)
        np.testing.assert_allclose(gradient(lowered), gradient(function), rtol=1e-3, atol=1e-3)


def test_a_derivative_of_its_own_stays():
    """A straight-through estimator, whose derivative jax's own would make zero."""
    x, w = images(2, 6, 2), jnp.asarray(np.random.default_rng(1).standard_normal((3, 3, 2, 2)), jnp.float32)
    binary = jax.custom_vjp(lambda x, w: convolution(x, jnp.sign(w)))
    binary.defvjp(lambda x, w: jax.vjp(convolution, x, jnp.sign(w)), lambda pull, g: pull(g))
    gradient = lambda f: jax.grad(lambda w: jnp.sin(f(x, w)).sum())(w)
    with pytest.warns(UserWarning, match="inside 'custom_vjp_call' stays as it is"):
        np.testing.assert_array_equal(gradient(lower_convolutions(binary)), gradient(binary))


def test_nothing_to_rewrite():
    largest = lambda x: lax.reduce_window(x, np.iinfo(np.int32).min, lax.max, (1, 2, 2, 1), (1, 1, 1, 1), "SAME")
    whole = jnp.arange(9).reshape(1, 3, 3, 1)
    np.testing.assert_array_equal(lower_convolutions(largest)(whole), largest(whole))
    assert lower_convolutions(lambda a: {"b": jnp.tanh(a)})(jnp.ones(3))["b"].shape == (3,)
