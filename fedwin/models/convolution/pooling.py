"""Max and average pooling that stay fast inside compiled loops and under vmap over clients."""

import itertools
import math

import jax.numpy as jnp
from jax import lax

from fedwin.models.convolution.im2col import pad, taps


def _split(x, window):
    """[B, n1 k1 (+ rest), ..., C] -> [B, n1, k1, ..., C] for disjoint windows of k1 x ... positions."""
    shape = [x.shape[0]]
    for axis, k in enumerate(window, start=1):
        x = lax.slice_in_dim(x, 0, x.shape[axis] // k * k, axis=axis)
        shape += [x.shape[axis] // k, k]
    return x.reshape(*shape, x.shape[-1])


def _pairwise(fold, slices):
    """Reduces slices pairwise in a tree, so that equal maxima of a 2 x 2 window share the gradient evenly."""
    slices = list(slices)
    while len(slices) > 1:
        pairs = [fold(a, b) for a, b in zip(slices[::2], slices[1::2])]
        slices = pairs + slices[len(slices) // 2 * 2 :]
    return slices[0]


def max_pool(x, window, strides=None, padding="VALID"):
    """Returns the maximum over windows of x [B, *spatial, C], [B, *out, C]; equal maxima share the gradient.

    max and ReLU commute: relu(max_pool(x)) has the values of max_pool(relu(x)) for a fraction of the ReLU's work.

    Args:
      strides: strides of the window; None for the window's sizes.
      padding: 'VALID', 'SAME' or (low, high) per spatial axis.
    """
    strides = tuple(strides or window)
    if isinstance(padding, str):
        padding = lax.padtype_to_pads(x.shape[1:-1], window, strides, padding)
    x = pad(x, padding, value=-jnp.inf)
    if tuple(window) != strides:
        return _pairwise(jnp.maximum, taps(x, window, strides, (1,) * len(window)))
    # On a CPU the gradient of reduce_window (select_and_scatter) is slow, and that of a maximum over axes counts ties.
    x = _split(x, window)
    every = slice(None)
    positions = itertools.product(*map(range, window))
    return _pairwise(
        jnp.maximum, [x[(every, *(part for k in position for part in (every, k)))] for position in positions]
    )


def avg_pool(x, window, strides):
    """Returns the mean over windows of x [B, *spatial, C] without padding, [B, *out, C]."""
    return _pairwise(jnp.add, taps(x, window, strides, (1,) * len(window))) / math.prod(window)


def global_avg_pool(x):
    """Returns the mean over all positions, [B, *spatial, C] -> [B, C]."""
    return x.mean(tuple(range(1, x.ndim - 1)))
