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


@pytest.mark.parametrize(
    "name", ["jit", "remat", "custom_jvp", "custom_vjp", "scan", "cond", "while", "relu unchanged"]
)
def test_rewriting_reaches_inside(name):
    x, w = images(2, 6, 2), jnp.asarray(np.random.default_rng(1).standard_normal((3, 3, 2, 2)), jnp.float32)
    jvp_rule = jax.custom_jvp(convolution)
    jvp_rule.defjvp(lambda p, t: jax.jvp(convolution, p, t))
    vjp_rule = jax.custom_vjp(convolution)
    vjp_rule.defvjp(lambda x, w: jax.vjp(convolution, x, w), lambda pull, g: pull(g))
    function = {
        "jit": jax.jit(convolution),
        "remat": jax.checkpoint(convolution),
        "custom_jvp": jvp_rule,
        "custom_vjp": vjp_rule,
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


def test_nothing_to_rewrite():
    assert lower_convolutions(lambda a: {"b": jnp.tanh(a)})(jnp.ones(3))["b"].shape == (3,)
