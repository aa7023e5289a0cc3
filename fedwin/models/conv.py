"""Convolution and pooling that stay fast inside compiled loops and under vmap over clients.

`conv_general_dilated` takes the place of lax's, for instance in `flax.linen.Conv(conv_general_dilated=...)`.
"""

import itertools
import math

import jax.numpy as jnp
from flax import linen as nn
from jax import lax

from fedwin.models.dense_conv import convolve
from fedwin.models.patches import depthwise, grouped, pad, patches, taps  # noqa: F401 (patches: for others)


def conv_general_dilated(
    lhs,
    rhs,
    window_strides,
    padding,
    lhs_dilation=None,
    rhs_dilation=None,
    dimension_numbers=None,
    feature_group_count=1,
    batch_group_count=1,
    precision=None,
    preferred_element_type=None,
):
    """`lax.conv_general_dilated`, same arguments and result, any layout, stride, dilation and padding.

    Without groups it is `dense_conv.convolve`; depthwise (groups = C_in) is a sum of shifted products, other groups a
    batched product of patches. batch_group_count > 1 goes to lax itself.
    """
    if batch_group_count != 1:
        return lax.conv_general_dilated(
            lhs, rhs, window_strides, padding, lhs_dilation, rhs_dilation, dimension_numbers,
            feature_group_count, batch_group_count, precision, preferred_element_type,
        )  # fmt: skip
    numbers = lax.conv_dimension_numbers(lhs.shape, rhs.shape, dimension_numbers)
    rank = lhs.ndim - 2
    to_last = (numbers.lhs_spec[0], *numbers.lhs_spec[2:], numbers.lhs_spec[1])
    x = lhs if to_last == tuple(range(lhs.ndim)) else lhs.transpose(to_last)
    to_hwio = (*numbers.rhs_spec[2:], numbers.rhs_spec[1], numbers.rhs_spec[0])
    kernel = rhs if to_hwio == tuple(range(rhs.ndim)) else rhs.transpose(to_hwio)

    strides = tuple(window_strides)
    inside = tuple(lhs_dilation or (1,) * rank)
    dilation = tuple(rhs_dilation or (1,) * rank)
    if isinstance(padding, str):
        sizes = [(n - 1) * i + 1 if n else 0 for n, i in zip(x.shape[1:-1], inside)]
        spans = [(k - 1) * d + 1 for k, d in zip(kernel.shape[:-2], dilation)]
        padding = lax.padtype_to_pads(sizes, spans, strides, padding)
    padding = tuple((int(low), int(high)) for low, high in padding)

    if feature_group_count == 1:
        y = convolve(x, kernel, strides, padding, inside, dilation, precision)
    else:
        x = pad(x, padding, tuple(i - 1 for i in inside))
        if feature_group_count == x.shape[-1]:
            y = depthwise(x, kernel, strides, dilation)
        else:
            y = grouped(x, kernel, strides, dilation, feature_group_count, precision)
    if preferred_element_type is not None:
        y = y.astype(preferred_element_type)
    back = [0] * lhs.ndim
    for position, axis in enumerate((numbers.out_spec[0], *numbers.out_spec[2:], numbers.out_spec[1])):
        back[axis] = position
    return y if back == list(range(lhs.ndim)) else y.transpose(back)


def Conv(features, kernel_size, strides=1, padding="SAME", **options):
    """`flax.linen.Conv` (same parameters: kernel [*window, C_in / groups, C_out], bias [C_out]) lowered as above."""
    return nn.Conv(
        features, kernel_size, strides=strides, padding=padding, conv_general_dilated=conv_general_dilated, **options
    )


def _padded(x, window, strides, padding, neutral):
    """Returns (x padded with `neutral`, strides, whether windows are disjoint); strides default to the window."""
    strides = tuple(strides or window)
    if isinstance(padding, str):
        padding = lax.padtype_to_pads(x.shape[1:-1], window, strides, padding)
    if any(tuple(p) != (0, 0) for p in padding):
        x = lax.pad(x, jnp.asarray(neutral, x.dtype), [(0, 0, 0), *((lo, hi, 0) for lo, hi in padding), (0, 0, 0)])
    return x, strides, tuple(window) == strides


def _split(x, window):
    """[B, n1 k1 (+ rest), ..., C] -> [B, n1, k1, ..., C] for disjoint windows of k1 x ... places."""
    shape = [x.shape[0]]
    for axis, k in enumerate(window, start=1):
        x = lax.slice_in_dim(x, 0, x.shape[axis] // k * k, axis=axis)
        shape += [x.shape[axis] // k, k]
    return x.reshape(*shape, x.shape[-1])


def _pairwise(fold, slices):
    """Folds neighbours, then the results' neighbours, and so on: equal maxima of a 2 x 2 window share evenly."""
    slices = list(slices)
    while len(slices) > 1:
        pairs = [fold(a, b) for a, b in zip(slices[::2], slices[1::2])]
        slices = pairs + slices[len(slices) // 2 * 2 :]
    return slices[0]


def max_pool(x, window, strides=None, padding="VALID"):
    """max over windows of x [B, *spatial, C]; strides default to the window. Equal maxima share the gradient.

    max and ReLU commute: relu(max_pool(x)) has the values of max_pool(relu(x)) for a fraction of the ReLU's work.
    """
    x, strides, disjoint = _padded(x, window, strides, padding, -jnp.inf)
    if not disjoint:
        return _pairwise(jnp.maximum, taps(x, tuple(window), strides, (1,) * len(window)))
    # On a CPU the gradient of reduce_window (select_and_scatter) is slow, and that of a maximum over axes counts ties.
    x = _split(x, window)
    every = slice(None)
    places = itertools.product(*map(range, window))
    return _pairwise(jnp.maximum, [x[(every, *(part for k in place for part in (every, k)))] for place in places])


def avg_pool(x, window, strides=None, padding="VALID"):
    """Mean over windows of x [B, *spatial, C]; padded zeros count, as in flax.linen.avg_pool."""
    x, strides, disjoint = _padded(x, window, strides, padding, 0)
    if disjoint:
        total = _split(x, window).sum(tuple(range(2, 2 * len(window) + 1, 2)))
    else:
        total = _pairwise(jnp.add, taps(x, tuple(window), strides, (1,) * len(window)))
    return total / math.prod(window)


def global_avg_pool(x):
    """[B, *spatial, C] -> [B, C]: the mean over all positions."""
    return x.mean(tuple(range(1, x.ndim - 1)))
