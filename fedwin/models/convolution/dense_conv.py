"""A convolution without groups, with each of its derivatives computed the fast way.

    y[b, h, w, :] = sum_{i, j} x[b, h s + i, w s + j, :] K[i, j]  =  patches(x)[b, h, w, :] @ K.reshape(-1, C_out)

Values, gradient of x and gradient of K are the three faces of one trilinear form <y(x, K), dy>; each is a primitive
here whose derivatives are the other two, so that derivatives of any order stay fast.

A kernel per client must not reach `lax.conv_general_dilated`: vmap would make a grouped convolution of it. So under
vmap all three are batched products of patches. Otherwise accelerators have lax's, which is their vendor's. On a CPU
larger ones are oneDNN's where that is at hand (`onednn.py`). Else lax's forward pass, which packs patches on the fly,
gives the values and, of the cotangent and the turned kernel, the gradient of x; the gradient of K, which XLA:CPU would
leave to a slow loop, is a sum of products of patches, made for a few images at a time so that they stay in the cache.
Where windows are wide, lax's packing is slow inside a network: values and the gradient of x are made of patches, too.
Few channels and other types than float32 are patches altogether.
"""

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from fedwin.models.convolution import by_blocks, onednn
from fedwin.models.convolution.geometry import Geometry, crops
from fedwin.models.convolution.patches import pad, product

# Images of fewer channels (grey, colour) suit lax's packing badly: their patches are made unless larger than this.
FEW_BYTES = 4 << 20
_NHWC = ("NHWC", "HWIO", "NHWC")


def convolve(x, kernel, strides, padding, inside, dilation, precision):
    """Convolves x [B, *spatial, C] with kernel [*window, C, C_out].

    Args:
      x: images, or what else has positions and channels.
      kernel: the weights.
      strides: of the window, one per spatial axis.
      padding: (low, high) per spatial axis.
      inside: dilation of x per spatial axis, 1 for none.
      dilation: of the kernel per spatial axis, 1 for none.
      precision: as for jax.lax.

    Returns:
      y [B, *out, C_out].
    """
    if crops(padding):  # some of XLA's versions are wrong about it
        x, padding, inside = pad(x, padding, tuple(i - 1 for i in inside)), ((0, 0),) * len(padding), (1,) * len(inside)
    g = Geometry(x.shape[1:-1], kernel.shape[:-2], strides, padding, inside, dilation, precision)
    patch_bytes = len(x) * math.prod(g.out) * math.prod(kernel.shape[:-1]) * x.dtype.itemsize
    narrow = (
        x.shape[-1] < by_blocks.FEW_CHANNELS and patch_bytes < FEW_BYTES and not _by_onednn(x, kernel.shape[-2:], g)
    )
    if len(g.window) != 2 or math.prod(g.window) == 1:
        return _plain_values(x, kernel, g)
    bound = lambda x, kernel: _values.bind(x, kernel, geometry=g)
    # lax on a CPU is fast for images in float32 only.
    if narrow or not x.dtype == kernel.dtype == jnp.float32:
        plain = lambda x, kernel: _plain_values(x, kernel, g)
        return lax.platform_dependent(x, kernel, cpu=plain, default=bound)
    return bound(x, kernel)


def _transposed_to_input(values: Callable, dy, kernel, g: Geometry):
    """The gradient of x of a convolution that `values` computes."""
    x = jax.ShapeDtypeStruct((dy.shape[0], *g.image, kernel.shape[-2]), dy.dtype)
    return jax.linear_transpose(lambda x: values(x, kernel, g), x)(dy)[0]


def _transposed_to_kernel(values: Callable, x, dy, g: Geometry):
    """The gradient of the kernel of a convolution that `values` computes."""
    kernel = jax.ShapeDtypeStruct((*g.window, x.shape[-1], dy.shape[-1]), dy.dtype)
    return jax.linear_transpose(lambda kernel: values(x, kernel, g), kernel)(dy)[0]


# ------------------------------------------------------------------------------------------------- under vmap


def _plain_values(x, kernel, g: Geometry):
    return product(pad(x, g.padding, tuple(i - 1 for i in g.inside)), kernel, g.strides, g.dilation, g.precision)


_plain_of_input = functools.partial(_transposed_to_input, _plain_values)
_plain_of_kernel = functools.partial(_transposed_to_kernel, _plain_values)


# ------------------------------------------------------------------------------------- one kernel, accelerators


def _lax_values(x, kernel, g: Geometry):
    return lax.conv_general_dilated(x, kernel, g.strides, g.padding, g.inside, g.dilation, _NHWC, precision=g.precision)


_lax_of_input = functools.partial(_transposed_to_input, _lax_values)
_lax_of_kernel = functools.partial(_transposed_to_kernel, _lax_values)


# -------------------------------------------------------------------------------------------- one kernel, a CPU


def _by_onednn(images, channels: tuple[int, int], g: Geometry) -> bool:
    """Whether oneDNN computes a face; `images` are x or dy, `channels` those of both."""
    return onednn.suits(len(images), channels, g, images.dtype) and onednn.at_hand()


def _fast_values(x, kernel, g: Geometry):
    if _by_onednn(x, kernel.shape[-2:], g):
        return onednn.values(x, kernel, g)
    if by_blocks.is_wide(kernel, g):
        return by_blocks.values(x, kernel, g)
    return _lax_values(x, kernel, g)


def _fast_of_input(dy, kernel, g: Geometry):
    """The cotangent, spread out by the strides, convolved with the kernel turned around."""
    if _by_onednn(dy, kernel.shape[-2:], g):
        return onednn.of_input(dy, kernel, g)
    if by_blocks.is_wide(kernel, g):
        return by_blocks.of_input(dy, kernel, g)
    padding = g.turned_padding
    if crops(padding):
        return _plain_of_input(dy, kernel, g)
    turned = kernel[::-1, ::-1].swapaxes(-1, -2)
    return lax.conv_general_dilated(dy, turned, g.inside, padding, g.strides, g.dilation, _NHWC, precision=g.precision)


def _fast_of_kernel(x, dy, g: Geometry):
    if _by_onednn(x, (x.shape[-1], dy.shape[-1]), g):
        return onednn.of_kernel(x, dy, g)
    return by_blocks.of_kernel(x, dy, g)


# --------------------------------------------------------------------------------------------------- primitives


def _primitive(name: str, fast: Callable, vendor: Callable, plain: Callable) -> Primitive:
    """A bilinear map of two arrays: `fast` on a CPU, `vendor` on accelerators, `plain` under vmap."""

    def run(a, b, *, geometry):
        return lax.platform_dependent(
            a, b, cpu=lambda a, b: fast(a, b, geometry), default=lambda a, b: vendor(a, b, geometry)
        )

    def shape(a, b, *, geometry):
        y = jax.eval_shape(lambda a, b: plain(a, b, geometry), a, b)
        return jax.core.ShapedArray(y.shape, y.dtype)

    def batch(operands, axes, *, geometry):
        return jax.vmap(lambda a, b: plain(a, b, geometry), tuple(axes))(*operands), 0

    primitive = Primitive(f"fedwin_convolution_{name}")
    primitive.def_impl(jax.jit(run, static_argnames="geometry"))
    primitive.def_abstract_eval(shape)
    batching.primitive_batchers[primitive] = batch
    mlir.register_lowering(primitive, mlir.lower_fun(run, multiple_results=False))
    return primitive


_values = _primitive("values", _fast_values, _lax_values, _plain_values)
_of_input = _primitive("of_input", _fast_of_input, _lax_of_input, _plain_of_input)
_of_kernel = _primitive("of_kernel", _fast_of_kernel, _lax_of_kernel, _plain_of_kernel)

# Rules of (cotangent, first, second): the derivative along the one that is not known.
ad.defbilinear(
    _values,
    lambda dy, x, kernel, **g: _of_input.bind(dy, kernel, **g),
    lambda dy, x, kernel, **g: _of_kernel.bind(x, dy, **g),
)
ad.defbilinear(
    _of_input,
    lambda x, dy, kernel, **g: _values.bind(x, kernel, **g),
    lambda x, dy, kernel, **g: _of_kernel.bind(x, dy, **g),
)
ad.defbilinear(
    _of_kernel,
    lambda kernel, x, dy, **g: _of_input.bind(dy, kernel, **g),
    lambda kernel, x, dy, **g: _values.bind(x, kernel, **g),
)
