"""Layers that networks share: initializers, convolution and dense layers, normalization, dropout."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import lax
from jax.nn import initializers
from jax.typing import DTypeLike

from fedwin import tree
from fedwin.models.convolution import Conv
from fedwin.models.group_norm import group_norm

Initializer = Callable[..., jax.Array]

he_normal = initializers.variance_scaling(2.0, "fan_in", "normal")
# PyTorch's default for Linear and Conv2d, U(-1/sqrt(fan_in), 1/sqrt(fan_in)).
torch_kernel = initializers.variance_scaling(1 / 3, "fan_in", "uniform")


def torch_bias(fan_in: int):
    """Returns PyTorch's default initializer of biases, U(-1/sqrt(fan_in), 1/sqrt(fan_in))."""
    bound = fan_in**-0.5
    return lambda key, shape, dtype=jnp.float32: jax.random.uniform(key, shape, dtype, -bound, bound)


def haiku_kernel(key, shape, dtype=jnp.float32):
    """Haiku's default initializer of Linear and Conv: normal truncated at 2 sigma, sigma = 1/sqrt(fan_in).

    Args:
      shape: [..., inputs, outputs]; fan_in is the product of all axes but the last.
    """
    fan_in = math.prod(shape[:-1])
    return initializers.truncated_normal(fan_in**-0.5)(key, shape, dtype)


# Most outputs of a dense layer whose kernel's gradient is faster transposed on a CPU (BUILD_NOTES.md).
FEW_OUTPUTS = 12


@jax.custom_jvp
def _product(x, kernel):
    return lax.dot(x, kernel)


def _tangent_of_kernel(tangent, y, x, kernel):
    # The transpose is (dy^T x)^T, which the barrier keeps XLA from rewriting as x^T dy: the bits are the same.
    turned = lambda x, k: lax.dot_general(x, lax.optimization_barrier(k.T), (((1,), (1,)), ((), ())))
    return lax.platform_dependent(x, tangent, cpu=turned, default=lax.dot)


_product.defjvps(lambda tangent, y, x, kernel: lax.dot(tangent, kernel), _tangent_of_kernel)


def _dot_general(x, kernel, *axes, **options):
    few = x.ndim == 2 and kernel.shape[-1] <= FEW_OUTPUTS and set(options.values()) <= {None}
    product = _product if few else lambda x, kernel: lax.dot_general(x, kernel, *axes, **options)
    if jnp.promote_types(x.dtype, jnp.float32) == x.dtype:
        return product(x, kernel)
    # XLA of jax 0.12 adds gradients of bfloat16 in bfloat16 on a CPU: sums of 4,096 equal numbers are up to 49 % off.
    wide = lambda *operands: product(*tree.at_least_float32(operands)).astype(x.dtype)
    return tree.at_least_float32(lax.platform_dependent(x, kernel, cpu=wide, default=product))


class Dense(nn.Dense):
    """flax.linen.Dense, with the bias added in float32; on rows [B, n] and with few outputs faster on a CPU."""

    dot_general: Callable = _dot_general

    def __call__(self, x):
        return jnp.asarray(super().__call__(x), self.dtype)


def torch_conv(x, features, kernel_size, strides=1, padding="SAME", *, kernel_init=torch_kernel, **options):
    """Applies a convolution to x [B, H, W, C] with PyTorch's default initialization; call it inside a compact method.

    Further options are those of flax.linen.Conv, such as `name` and `dtype`.
    """
    fan_in = x.shape[-1] // options.get("feature_group_count", 1) * kernel_size[0] * kernel_size[1]
    layer = Conv(
        features, kernel_size, strides, padding, kernel_init=kernel_init, bias_init=torch_bias(fan_in), **options
    )
    return layer(x)


def torch_dense(x, features, *, kernel_init=torch_kernel, **options):
    """Applies a dense layer with PyTorch's default initialization; options are those of flax.linen.Dense."""
    return Dense(features, kernel_init=kernel_init, bias_init=torch_bias(x.shape[-1]), **options)(x)


def flatten(x):
    """Returns x with all axes but the first merged, [B, ...] -> [B, n]."""
    return x.reshape(x.shape[0], -1)


def dropout(x, rate: float, key, train: bool):
    """Applies dropout: x m / (1 - rate) with m ~ Bernoulli(1 - rate) per element in training, else x.

    A rate that is a multiple of 1/256 needs only 8 random bits per element, a quarter of the generator's work.
    """
    if not train or rate == 0:
        return x
    keep = 1 - rate
    if (keep * 256).is_integer():
        mask = jax.random.bits(key, x.shape, jnp.uint8) < int(keep * 256)
    else:
        mask = jax.random.bernoulli(key, keep, x.shape)
    return jnp.where(mask, x / keep, 0)


class GroupNorm(nn.Module):
    """Group normalization, `fedwin.models.group_norm`, of x [B, *spatial, C]; parameters as in flax.linen.

    Attributes:
      epsilon: added to the variance, PyTorch's 1e-5 (flax: 1e-6).
    """

    groups: int = 2
    epsilon: float = 1e-5
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, x, add=None, relu: bool = False):
        scale = self.param("scale", nn.initializers.ones, x.shape[-1:], jnp.float32)
        bias = self.param("bias", nn.initializers.zeros, x.shape[-1:], jnp.float32)
        return group_norm(x.astype(self.dtype), scale, bias, add, groups=self.groups, epsilon=self.epsilon, relu=relu)


class BatchNorm(nn.Module):
    """Batch normalization (Ioffe and Szegedy, 2015) in PyTorch's conventions, https://arxiv.org/abs/1502.03167.

        y = (x - mean) / sqrt(var + eps) * scale + bias      per channel

    In training, mean and var are those of the batch without padded rows, and the running statistics are updated:

        running <- (1 - momentum) running + momentum batch

    with the unbiased variance, multiplied by n / (n - 1) for n = rows x positions. In evaluation, mean and var are the
    running statistics.

    Attributes:
      momentum: weight of the new value (PyTorch's 0.1 is flax's 0.9).
    """

    momentum: float = 0.1
    epsilon: float = 1e-5
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, x, train: bool, mask=None):
        """Normalizes x [B, ..., C], in training with the statistics of rows whose mask [B] is not 0, or of all rows."""
        channels = x.shape[-1]
        scale = self.param("scale", nn.initializers.ones, (channels,), jnp.float32)
        bias = self.param("bias", nn.initializers.zeros, (channels,), jnp.float32)
        running_mean = self.variable("batch_stats", "mean", jnp.zeros, (channels,), jnp.float32)
        running_var = self.variable("batch_stats", "var", jnp.ones, (channels,), jnp.float32)
        wide = tree.at_least_float32(x.reshape(x.shape[0], -1, channels))
        if not train:
            mean, var = running_mean.value, running_var.value
        else:
            rows = jnp.ones(x.shape[0]) if mask is None else jnp.asarray(mask, jnp.float32)
            count = rows.sum() * wide.shape[1]
            safe = jnp.maximum(count, 1)
            real = rows[:, None, None]
            mean = (wide * real).sum((0, 1)) / safe
            var = (jnp.square(wide - mean) * real).sum((0, 1)) / safe
            if not self.is_initializing():
                # A batch that is padding alone must not change the running statistics.
                step = jnp.where(count > 0, self.momentum, 0.0)
                unbiased = jax.lax.stop_gradient(var * count / jnp.maximum(count - 1, 1))
                running_mean.value += step * (jax.lax.stop_gradient(mean) - running_mean.value)
                running_var.value += step * (unbiased - running_var.value)
        factor = scale * jax.lax.rsqrt(var + self.epsilon)
        return (wide * factor + (bias - mean * factor)).reshape(x.shape).astype(self.dtype)


class Norm(nn.Module):
    """GroupNorm ('gn') or BatchNorm ('bn'), then x + add and ReLU; train and mask matter to BatchNorm alone."""

    kind: str
    groups: int = 2
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, x, train: bool, mask=None, add=None, relu: bool = False):
        if self.kind == "gn":
            return GroupNorm(self.groups, dtype=self.dtype, name="gn")(x, add, relu)
        x = BatchNorm(dtype=self.dtype, name="bn")(x, train, mask)
        x = x if add is None else x + add
        return nn.relu(x) if relu else x
