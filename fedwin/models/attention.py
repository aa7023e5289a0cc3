"""Blocks of transformers: self-attention and a perceptron, each after layer normalization; rotary positions."""

import functools
import math

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import lax
from jax.nn import initializers
from jax.typing import DTypeLike

from fedwin import tree
from fedwin.errors import UserError
from fedwin.models.layers import Dense

# GPT-2's standard deviation of all weights; that of layers whose outputs are added up is divided by sqrt(2 layers).
SCALE = 0.02
# Smallest frequency of rotary positions.
ROTARY_BASE = 10_000
# Width of a block's perceptron as a multiple of the model's.
EXPANSION = 4


def rotate(x):
    """Returns queries or keys [B, T, heads, H], H even, with rotary position embeddings (Su et al., 2021).

        (x_i, x_{i+H/2}) <- (x_i cos a - x_{i+H/2} sin a,  x_{i+H/2} cos a + x_i sin a),  a = t 10000^(-2i/H)

    at position t = 0, 1, ...; the scalar product of a rotated query and a rotated key depends on the distance of their
    positions alone.

    Source: https://arxiv.org/abs/2104.09864
    """
    half = x.shape[-1] // 2
    frequencies = ROTARY_BASE ** (-jnp.arange(half) / half)
    angles = (jnp.arange(x.shape[1])[:, None] * frequencies)[:, None]
    wide = tree.at_least_float32(x)
    first, second = wide[..., :half], wide[..., half:]
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], -1).astype(x.dtype)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def attend(query, key, value, causal: bool):
    """Returns softmax(Q K^T / sqrt(H)) V per head, with gradients that take XLA:CPU 0.4 of the time of jax.nn's.

    The weights are E / l for E = exp(scores - max) and l = sum E: values and cotangents are divided by l, not weights,
    which are larger. Reverse mode only. All arrays are [B, T, heads, H], and the result has the dtype of the values.

    Args:
      causal: whether a position sees only itself and those before it.
    """
    return _attend_forward(query, key, value, causal)[0]


def _product(subscripts: str, a, b):
    # The barrier keeps XLA:CPU from fusing a product with what follows, and from computing its transpose.
    wide = jnp.promote_types(a.dtype, jnp.float32)
    return lax.optimization_barrier(jnp.einsum(subscripts, a, b, preferred_element_type=wide))


def _attend_forward(query, key, value, causal):
    # Weights are [B, heads, keys, queries]: what is the same for all keys of a query is one row of numbers.
    scaled = query * query.shape[-1] ** -0.5
    scores = _product("bsnh,btnh->bnst", key, scaled)
    if causal:
        scores = jnp.where(jnp.triu(jnp.ones(scores.shape[2:], bool)), scores, -jnp.inf)
    weights = lax.optimization_barrier(jnp.exp(scores - scores.max(2, keepdims=True)))
    total = weights.sum(2, keepdims=True)
    weights = weights.astype(value.dtype)
    y = _product("bsnh,bnst->bnht", value, weights) / total
    return y.transpose(0, 3, 1, 2).astype(value.dtype), (scaled, key, value, weights, total, y)


def _attend_backward(causal, saved, cotangent):
    scaled, key, value, weights, total, y = saved
    dy = cotangent.transpose(0, 2, 3, 1) / total
    shift = jnp.sum(dy * y, 2, keepdims=True)  # sum_s weights_s dweights_s
    dy = dy.astype(value.dtype)
    of_value = _product("bnst,bnht->bnsh", weights, dy)
    of_scores = weights * (_product("bsnh,bnht->bnst", value, dy) - shift)
    of_scores = lax.optimization_barrier(of_scores.astype(value.dtype))
    of_key = _product("bnst,btnh->bnsh", of_scores, scaled)
    of_query = _product("bsnh,bnst->bnht", key, of_scores) * key.shape[-1] ** -0.5
    gradients = of_query.transpose(0, 3, 1, 2), of_key.swapaxes(1, 2), of_value.swapaxes(1, 2)
    return tuple(gradient.astype(value.dtype) for gradient in gradients)


attend.defvjp(_attend_forward, _attend_backward)


class RowDense(Dense):
    """A dense layer on rows [..., width]; XLA:CPU computes the gradient of products of matrices without a copy."""

    def __call__(self, x):
        return super().__call__(x.reshape(-1, x.shape[-1])).reshape(*x.shape[:-1], self.features)


class SelfAttention(nn.Module):
    """Multi-head self-attention, softmax(Q K^T / sqrt(width / heads)) V per head: 4 width (width + 1) parameters.

    Attributes:
      heads: number of heads, a divisor of the width.
      causal: whether a position sees only itself and those before it.
      rotary: whether queries and keys are rotated by their positions.
      depth: number of blocks of the network, for the initialization.
    """

    heads: int
    causal: bool
    rotary: bool
    depth: int
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, x):
        width = x.shape[-1]
        dense = lambda name, scale: RowDense(width, kernel_init=initializers.normal(scale), dtype=self.dtype, name=name)
        split = lambda y: y.reshape(*y.shape[:-1], self.heads, width // self.heads)
        query, key, value = (split(dense(name, SCALE)(x)) for name in ("query", "key", "value"))
        if self.rotary:
            query, key = rotate(query), rotate(key)
        y = attend(query, key, value, self.causal)
        return dense("out", SCALE / math.sqrt(2 * self.depth))(y.reshape(x.shape))


class Block(nn.Module):
    """x <- x + attention(norm1(x));  x <- x + down(GELU(up(norm2(x)))), with 4 width neurons in between.

    12 width^2 + 13 width parameters; attributes as in `SelfAttention`.
    """

    heads: int
    causal: bool
    rotary: bool
    depth: int
    dtype: DTypeLike = jnp.float32

    @nn.compact
    def __call__(self, x):
        width = x.shape[-1]
        norm = lambda name: nn.LayerNorm(epsilon=1e-5, dtype=self.dtype, name=name)
        dense = lambda features, scale, name: RowDense(
            features, kernel_init=initializers.normal(scale), dtype=self.dtype, name=name
        )
        attention = SelfAttention(self.heads, self.causal, self.rotary, self.depth, self.dtype, name="attention")
        x = x + attention(norm("norm1")(x))
        y = nn.gelu(dense(EXPANSION * width, SCALE, "up")(norm("norm2")(x)))
        return x + dense(width, SCALE / math.sqrt(2 * self.depth), "down")(y)


def apply_blocks(x, layers: int, heads: int, *, causal: bool, rotary: bool = False, dtype: DTypeLike = jnp.float32):
    """Applies the blocks block1, block2, ... and a last layer normalization, norm; call it inside a compact method.

    x is [B, T, width]; the attributes are those of `SelfAttention`.
    """
    for i in range(layers):
        x = Block(heads, causal, rotary, layers, dtype, name=f"block{i + 1}")(x)
    return nn.LayerNorm(epsilon=1e-5, dtype=dtype, name="norm")(x)


def check_heads(network: str, width: int, heads: int) -> None:
    """Raises UserError unless the number of heads divides the width."""
    if width % heads:
        raise UserError(f"{network}: heads={heads} must divide the width, {width}.")
