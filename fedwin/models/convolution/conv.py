"""conv_general_dilated, a replacement for lax's convolution, and Conv, the flax layer that uses it."""

from collections.abc import Callable

import jax.numpy as jnp
from flax import linen as nn
from jax import lax

from fedwin import tree
from fedwin.models.convolution.dense_conv import convolve
from fedwin.models.convolution.im2col import depthwise, grouped, pad


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
    """Replaces `lax.conv_general_dilated`, with the same arguments and result, for any layout.

    A convolution without groups is `dense_conv.convolve`, a depthwise one (groups = C_in) a sum of shifted products,
    and any other grouped one a batched product of patches. With batch_group_count > 1 lax is called.
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

    if preferred_element_type is not None:  # of the sums, too
        x, kernel = (a.astype(jnp.promote_types(a.dtype, preferred_element_type)) for a in (x, kernel))
    if feature_group_count == 1:
        y = convolve(x, kernel, strides, padding, inside, dilation, precision)
    else:
        x = pad(x, padding, inside)
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


class Conv(nn.Conv):
    """flax.linen.Conv, computed with `conv_general_dilated`; the bias is added, and its gradient summed, in float32."""

    conv_general_dilated: Callable = lambda *args, **options: tree.at_least_float32(
        conv_general_dilated(*args, **options)
    )

    def __call__(self, x):
        return jnp.asarray(super().__call__(x), self.dtype)
