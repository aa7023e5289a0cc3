"""Normalization and dropout layers."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from jax.test_util import check_grads

from fedwin import testing
from fedwin.models import layers
from fedwin.models.convolution import Conv
from fedwin.models.layers import BatchNorm, dropout
from tests import golden_problems as golden


@pytest.mark.parametrize("rate", [0.25, 0.5, 0.3])
def test_dropout_keeps_the_mean(rate):
    y = dropout(jnp.ones(200_000), rate, jax.random.key(0), True)
    assert abs(float((y == 0).mean()) - rate) < 0.005
    assert abs(float(y.mean()) - 1) < 0.01


def batch_norm(x, mask=None, train=True, stats=None):
    layer = BatchNorm()
    variables = layer.init(jax.random.key(0), x, True) | ({} if stats is None else {"batch_stats": stats})
    return layer.apply(variables, x, train, mask, mutable=["batch_stats"])


def test_golden_batch_norm_running_statistics():
    g = golden.load("golden_ima_wsm.json")["g11_norm"]
    _, updated = batch_norm(jnp.asarray(g["batch"])[:, None])
    np.testing.assert_allclose(updated["batch_stats"]["mean"], g["running_mean_after"], rtol=1e-6)
    np.testing.assert_allclose(updated["batch_stats"]["var"], g["running_var_after_unbiased"], rtol=1e-6)


def test_batch_norm_ignores_padded_rows():
    x = jnp.asarray(np.random.default_rng(0).standard_normal((5, 3, 3, 4)), jnp.float32)
    padded = x.at[3:].set(1e3)
    y, updated = batch_norm(padded, mask=jnp.array([1.0, 1, 1, 0, 0]))
    want, wanted = batch_norm(x[:3])
    np.testing.assert_allclose(y[:3], want, rtol=1e-5, atol=1e-5)
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6), updated, wanted)
    _, untouched = batch_norm(padded, mask=jnp.zeros(5))
    jax.tree.map(np.testing.assert_array_equal, untouched["batch_stats"], {"mean": jnp.zeros(4), "var": jnp.ones(4)})


def test_batch_norm_evaluates_with_running_statistics():
    x = jnp.asarray(np.random.default_rng(0).standard_normal((5, 4)), jnp.float32)
    stats = {"mean": jnp.arange(4.0), "var": jnp.full(4, 4.0)}
    y, updated = batch_norm(x, train=False, stats=stats)
    np.testing.assert_allclose(y, (x - jnp.arange(4.0)) / np.sqrt(4 + 1e-5), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(updated["batch_stats"]["mean"], stats["mean"])


def test_a_dense_layer_with_few_outputs_has_the_bits_and_derivatives_of_flax():
    x = jax.random.normal(jax.random.key(0), (10, 784))
    params = nn.Dense(10).init(jax.random.key(1), x)
    gradient = lambda layer: jax.jit(jax.grad(lambda params: jnp.sum(layer.apply(params, x) ** 2)))
    own, flax = (gradient(kind(10)).lower(params).compile() for kind in (layers.Dense, nn.Dense))
    jax.tree.map(np.testing.assert_array_equal, own(params), flax(params))
    turned = ("f32[784,10]{0,1} dot(", "f32[10,784]{1,0} dot(")  # the longer rows of the result are its inner axis
    assert [any(text in program.as_text() for text in turned) for program in (own, flax)] == [True, False]
    check_grads(layers.Dense(2).apply, (nn.Dense(2).init(jax.random.key(2), x[:, :5]), x[:, :5]), 2, rtol=1e-2)


def test_gradients_of_convolutions_are_added_in_float32():
    layer, x = Conv(2, (1, 1), feature_group_count=2, dtype=jnp.bfloat16), jnp.ones((64, 64, 1, 2))
    found = jax.jit(jax.grad(lambda params: layer.apply(params, x).sum()))(layer.init(jax.random.key(0), x))
    # In bfloat16, the sum of 4,096 ones is that of 256.
    jax.tree.map(lambda leaf: np.testing.assert_array_equal(leaf, 4096), found)


def test_initializers_have_the_spread_of_the_libraries_they_imitate():
    fan_in, shape = 400, (5, 5, 16, 50)
    bound = fan_in**-0.5

    @functools.partial(jax.jit, compiler_options=testing.compile_options())
    def draw(key):
        kernels = [init(key, shape) for init in (layers.torch_kernel, layers.he_normal, layers.haiku_kernel)]
        return *kernels, layers.torch_bias(fan_in)(key, (2000,))

    kernel, he, haiku, bias = map(np.asarray, draw(jax.random.key(0)))
    for values in (kernel, bias):
        assert 0.99 * bound < values.max() <= bound and -bound <= values.min() < -0.99 * bound
    assert he.std() == pytest.approx((2 / fan_in) ** 0.5, rel=0.02)
    # The normal distribution is truncated at two of its standard deviations.
    assert np.abs(haiku).max() == pytest.approx(2 * bound, rel=0.01)
    assert haiku.std() == pytest.approx(0.88 * bound, rel=0.02)


def test_convolution_biases_have_pytorchs_bound():
    class Net(nn.Module):
        groups: int

        @nn.compact
        def __call__(self, x):
            return layers.torch_conv(x, 2048, (3, 3), feature_group_count=self.groups, name="conv")

    for groups, fan_in in ((1, 36), (4, 9)):
        init = jax.jit(Net(groups).init, compiler_options=testing.compile_options())
        bias = init(jax.random.key(0), jnp.zeros((1, 3, 3, 4)))["params"]["conv"]["bias"]
        assert 0.98 * fan_in**-0.5 < np.abs(bias).max() <= fan_in**-0.5
