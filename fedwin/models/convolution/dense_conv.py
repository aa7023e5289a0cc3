"""A convolution and its derivatives on a CPU, of patches of a few images at a time, so that these stay in the cache."""

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from fedwin.models.convolution import onednn
from fedwin.models.convolution.im2col import Geometry, crops, pad, patches, product

# Patches that are made at a time: about half of a core's second-level cache.
BLOCK_BYTES = 1 << 20
# Windows of so many places are wide: 5 x 5 is, 3 x 3 is not. Measured in whole training steps, see BUILD_NOTES.md.
WIDE_WINDOW = 16
# Images of fewer channels (grey, colour) are not worth it.
FEW_CHANNELS = 8


def is_wide(kernel, g: Geometry) -> bool:
    """Whether values and the gradient of x are faster so than as lax computes them."""
    dense = all(step == 1 for step in (*g.strides, *g.inside, *g.dilation))
    return dense and math.prod(g.window) >= WIDE_WINDOW and kernel.shape[-2] >= FEW_CHANNELS


def _in_blocks(images: int, bytes_each: int) -> int:
    """Returns how many images make a block: the most that fit and divide them all."""
    fitting = BLOCK_BYTES // bytes_each
    return next(n for n in range(max(1, min(fitting, images)), 0, -1) if images % n == 0)


def _split_blocks(a, each: int):
    return a.reshape(len(a) // each, each, *a.shape[1:])


def _over_blocks(made, images, each: int):
    """Returns `made` of blocks of images, one after the other."""
    found = lax.scan(lambda _, block: (None, made(block)), None, _split_blocks(images, each))[1]
    return found.reshape(len(images), *found.shape[2:])


def _patch_bytes(positions: tuple, kernel) -> int:
    return math.prod(positions) * math.prod(kernel.shape[:-1]) * kernel.dtype.itemsize


def block_values(x, kernel, g: Geometry):
    """patches(x) K; wide windows only."""
    x = pad(x, g.padding)
    out = tuple(n - k + 1 for n, k in zip(x.shape[1:-1], g.window, strict=True))
    each = _in_blocks(len(x), _patch_bytes(out, kernel))
    return _over_blocks(lambda x: product(x, kernel, g.strides, g.dilation, g.precision), x, each)


def block_of_input(dy, kernel, g: Geometry):
    """dy K^T, every window's part added where the window was; wide windows only."""
    height, width = g.window
    rows, columns = dy.shape[1:-1]
    channels = kernel.shape[-2]
    flat = kernel.reshape(-1, kernel.shape[-1]).T

    def made(dy):
        parts = jnp.matmul(dy, flat, precision=g.precision).reshape(*dy.shape[:-1], -1, channels)
        x = jnp.zeros((len(dy), rows + height - 1, columns + width - 1, channels), dy.dtype)
        for n in range(height * width):
            i, j = divmod(n, width)
            there = lax.slice(x, (0, i, j, 0), (len(dy), i + rows, j + columns, channels))
            x = lax.dynamic_update_slice(x, there + parts[..., n, :], (0, i, j, 0))
        (top, _), (left, _) = g.padding
        return x[:, top : top + g.image[0], left : left + g.image[1]]

    return _over_blocks(made, dy, _in_blocks(len(dy), _patch_bytes((rows, columns), kernel)))


def block_of_kernel(x, dy, g: Geometry):
    """patches(x)^T dy, summed over blocks of images."""
    x = pad(x, g.padding, tuple(i - 1 for i in g.inside))
    images, depth = len(dy), math.prod(g.window) * x.shape[-1]

    def block(x, dy):
        columns = patches(x, g.window, g.strides, g.dilation)
        # dy comes first: the product with the longer rows on the right is the faster one.
        return lax.dot_general(dy, columns, (((0, 1, 2), (0, 1, 2)), ((), ())), precision=g.precision)

    each = _in_blocks(images, math.prod(dy.shape[1:-1]) * depth * x.dtype.itemsize)
    zeros = jnp.zeros((dy.shape[-1], depth), x.dtype)
    blocks = (_split_blocks(x, each), _split_blocks(dy, each))
    total = lax.scan(lambda total, part: (total + block(*part), None), zeros, blocks)[0]
    # The barrier keeps XLA from turning the product of a single block around again.
    return lax.optimization_barrier(total).T.reshape(*g.window, x.shape[-1], dy.shape[-1])


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
    narrow = x.shape[-1] < FEW_CHANNELS and patch_bytes < FEW_BYTES and not _by_onednn(x, kernel.shape[-2:], g)
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
    return onednn.suits(len(images), channels, g, images.dtype) and onednn.is_available()


def _fast_values(x, kernel, g: Geometry):
    if _by_onednn(x, kernel.shape[-2:], g):
        return onednn.values(x, kernel, g)
    if is_wide(kernel, g):
        return block_values(x, kernel, g)
    return _lax_values(x, kernel, g)


def _fast_of_input(dy, kernel, g: Geometry):
    """The cotangent, spread out by the strides, convolved with the kernel turned around."""
    if _by_onednn(dy, kernel.shape[-2:], g):
        return onednn.of_input(dy, kernel, g)
    if is_wide(kernel, g):
        return block_of_input(dy, kernel, g)
    padding = g.turned_padding
    if crops(padding):
        return _plain_of_input(dy, kernel, g)
    turned = kernel[::-1, ::-1].swapaxes(-1, -2)
    return lax.conv_general_dilated(dy, turned, g.inside, padding, g.strides, g.dilation, _NHWC, precision=g.precision)


def _fast_of_kernel(x, dy, g: Geometry):
    if _by_onednn(x, (x.shape[-1], dy.shape[-1]), g):
        return onednn.of_kernel(x, dy, g)
    return block_of_kernel(x, dy, g)


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
