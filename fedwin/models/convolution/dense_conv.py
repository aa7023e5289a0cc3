"""Convolution without groups as a primitive with fast derivatives of any order.

    y[b, h, w, :] = sum_{i, j} x[b, h s + i, w s + j, :] K[i, j]  =  patches(x)[b, h, w, :] @ K.reshape(-1, C_out)

Values, gradient of x and gradient of K all derive from one trilinear form <y(x, K), dy>. Each is a primitive here,
whose derivatives are the other two.

How each is computed:

- Under vmap over kernels (one per client), as batched products of patches: `lax.conv_general_dilated` would become a
  grouped convolution, which is slow everywhere.
- On accelerators, by lax's convolution, which is the vendor's.
- On a CPU, by oneDNN for larger convolutions where it is available (`onednn.py`).
- Otherwise on a CPU, values and gradient of x by lax's forward pass, which packs patches on the fly, and the gradient
  of K, for which XLA:CPU has only a slow loop, as a sum of products of patches over blocks of images that fit in the
  cache. With wide windows, which lax packs slowly inside a network, values and gradient of x use such blocks, too.
- With few channels, or types other than float32, as one product of patches.
"""

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from fedwin.models.convolution import onednn
from fedwin.models.convolution.im2col import Geometry, crops, pad, patches, product, without_idle_taps

# Bytes of patches that are materialized at a time: about half of a core's second-level cache.
BLOCK_BYTES = 1 << 20
# Windows with at least this many positions are wide: 5 x 5 is, 3 x 3 is not. Measured in entire training steps.
WIDE_WINDOW = 16
# Images with fewer channels (gray, color) are treated separately.
FEW_CHANNELS = 8
# Patches of images with few channels are materialized unless they are larger than this: lax packs them slowly.
FEW_BYTES = 4 << 20
_NHWC = ("NHWC", "HWIO", "NHWC")


def convolve(x, kernel, strides, padding, inside, dilation, precision):
    """Convolves x [B, *spatial, C] with a kernel [*window, C, C_out], without groups: y [B, *out, C_out].

    The other arguments are those of `Geometry`; negative padding crops.
    """
    if crops(padding):  # some versions of XLA compute this wrongly
        x, padding, inside = pad(x, padding, inside), ((0, 0),) * len(padding), (1,) * len(inside)
    g = Geometry(x.shape[1:-1], kernel.shape[:-2], strides, padding, inside, dilation, precision)
    kernel, g = without_idle_taps(kernel, g)
    narrow = x.shape[-1] < FEW_CHANNELS and len(x) * _patch_bytes(g.out, kernel) < FEW_BYTES
    whole = not jnp.issubdtype(x.dtype, jnp.inexact)  # cuDNN convolves no integers
    if len(g.window) != 2 or math.prod(g.window) == 1 or whole:
        return _plain_values(x, kernel, g)
    bound = lambda x, kernel: _values.bind(x, kernel, geometry=g)
    # Otherwise on a CPU, lax is fast for images with some channels, in float32, only.
    elsewhere_slow = narrow or not x.dtype == kernel.dtype == jnp.float32
    if elsewhere_slow and not (x.dtype == kernel.dtype and _by_onednn(x, kernel.shape[-2:], g)):
        plain = lambda x, kernel: _plain_values(x, kernel, g)
        return lax.platform_dependent(x, kernel, cpu=plain, default=bound)
    return bound(x, kernel)


def _transposed_to_input(values: Callable, dy, kernel, g: Geometry):
    """Returns the gradient of x of the convolution that `values` computes."""
    x = jax.ShapeDtypeStruct((dy.shape[0], *g.image, kernel.shape[-2]), dy.dtype)
    return jax.linear_transpose(lambda x: values(x, kernel, g), x)(dy)[0]


def _transposed_to_kernel(values: Callable, x, dy, g: Geometry):
    """Returns the gradient of the kernel of the convolution that `values` computes."""
    kernel = jax.ShapeDtypeStruct((*g.window, x.shape[-1], dy.shape[-1]), dy.dtype)
    return jax.linear_transpose(lambda kernel: values(x, kernel, g), kernel)(dy)[0]


# ------------------------------------------------------------------------------------------------- under vmap


def _plain_values(x, kernel, g: Geometry):
    return product(pad(x, g.padding, g.inside), kernel, g.strides, g.dilation, g.precision)


_plain_input_gradient = functools.partial(_transposed_to_input, _plain_values)
_plain_kernel_gradient = functools.partial(_transposed_to_kernel, _plain_values)


# ------------------------------------------------------------------------------------- one kernel, accelerators


def _lax_values(x, kernel, g: Geometry):
    return lax.conv_general_dilated(x, kernel, g.strides, g.padding, g.inside, g.dilation, _NHWC, precision=g.precision)


_lax_input_gradient = functools.partial(_transposed_to_input, _lax_values)
_lax_kernel_gradient = functools.partial(_transposed_to_kernel, _lax_values)


# ------------------------------------------------------------------------- one kernel, a CPU, blocks of images


def _is_wide(kernel, g: Geometry) -> bool:
    """Whether values and the gradient of x are faster as products over blocks than with lax's convolution."""
    dense = all(step == 1 for step in (*g.strides, *g.inside, *g.dilation))
    return dense and math.prod(g.window) >= WIDE_WINDOW and kernel.shape[-2] >= FEW_CHANNELS


def _block_size(images: int, bytes_each: int) -> int:
    """Returns the number of images per block: the largest divisor of `images` that fits."""
    fitting = BLOCK_BYTES // bytes_each
    return next(n for n in range(max(1, min(fitting, images)), 0, -1) if images % n == 0)


def _split_blocks(a, each: int):
    return a.reshape(len(a) // each, each, *a.shape[1:])


def _map_blocks(function, images, each: int):
    """Returns `function` applied to blocks of `each` images, one after the other."""
    results = lax.scan(lambda _, block: (None, function(block)), None, _split_blocks(images, each))[1]
    return results.reshape(len(images), *results.shape[2:])


def _patch_bytes(positions: tuple, kernel) -> int:
    """Returns the bytes of an image's patches at some positions."""
    return math.prod(positions) * math.prod(kernel.shape[:-1]) * kernel.dtype.itemsize


def _block_values(x, kernel, g: Geometry):
    """Returns patches(x) K; for wide windows only."""
    x = pad(x, g.padding)
    each = _block_size(len(x), _patch_bytes(g.out, kernel))
    return _map_blocks(lambda x: product(x, kernel, g.strides, g.dilation, g.precision), x, each)


def _block_input_gradient(dy, kernel, g: Geometry):
    """Returns dy K^T with every window's contribution added at the window's position; for wide windows only."""
    height, width = g.window
    rows, columns = dy.shape[1:-1]
    channels = kernel.shape[-2]
    flat = kernel.reshape(-1, kernel.shape[-1]).T

    def block(dy):
        parts = jnp.matmul(dy, flat, precision=g.precision).reshape(*dy.shape[:-1], -1, channels)
        x = jnp.zeros((len(dy), rows + height - 1, columns + width - 1, channels), dy.dtype)
        for n in range(height * width):
            i, j = divmod(n, width)
            window = lax.slice(x, (0, i, j, 0), (len(dy), i + rows, j + columns, channels))
            x = lax.dynamic_update_slice(x, window + parts[..., n, :], (0, i, j, 0))
        (top, _), (left, _) = g.padding
        return x[:, top : top + g.image[0], left : left + g.image[1]]

    return _map_blocks(block, dy, _block_size(len(dy), _patch_bytes((rows, columns), kernel)))


def _block_kernel_gradient(x, dy, g: Geometry):
    """Returns patches(x)^T dy, summed over blocks of images."""
    x = pad(x, g.padding, g.inside)
    images, depth = len(dy), math.prod(g.window) * x.shape[-1]

    def block(x, dy):
        columns = patches(x, g.window, g.strides, g.dilation)
        # dy comes first: the product is faster with the longer rows on the right.
        return lax.dot_general(dy, columns, (((0, 1, 2), (0, 1, 2)), ((), ())), precision=g.precision)

    each = _block_size(images, math.prod(dy.shape[1:-1]) * depth * x.dtype.itemsize)
    zeros = jnp.zeros((dy.shape[-1], depth), x.dtype)
    blocks = (_split_blocks(x, each), _split_blocks(dy, each))
    total = lax.scan(lambda total, part: (total + block(*part), None), zeros, blocks)[0]
    # The barrier keeps XLA from transposing the product of a single block back.
    return lax.optimization_barrier(total).T.reshape(*g.window, x.shape[-1], dy.shape[-1])


# -------------------------------------------------------------------------------------------- one kernel, a CPU


def _by_onednn(images, channels: tuple[int, int], g: Geometry) -> bool:
    """Whether oneDNN computes a convolution or gradient; `images` are x or dy, `channels` those of x and of y."""
    return onednn.suits(len(images), channels, g, images.dtype) and onednn.is_available()


def _fast_values(x, kernel, g: Geometry):
    if _by_onednn(x, kernel.shape[-2:], g):
        return onednn.values(x, kernel, g)
    if _is_wide(kernel, g):
        return _block_values(x, kernel, g)
    return _lax_values(x, kernel, g)


def _fast_input_gradient(dy, kernel, g: Geometry):
    """Returns the cotangent, dilated by the strides, convolved with the flipped kernel."""
    if _by_onednn(dy, kernel.shape[-2:], g):
        return onednn.input_gradient(dy, kernel, g)
    if _is_wide(kernel, g):
        return _block_input_gradient(dy, kernel, g)
    padding = g.transposed_padding
    if crops(padding):
        return _plain_input_gradient(dy, kernel, g)
    turned = kernel[::-1, ::-1].swapaxes(-1, -2)
    return lax.conv_general_dilated(dy, turned, g.inside, padding, g.strides, g.dilation, _NHWC, precision=g.precision)


def _fast_kernel_gradient(x, dy, g: Geometry):
    if _by_onednn(x, (x.shape[-1], dy.shape[-1]), g):
        return onednn.kernel_gradient(x, dy, g)
    return _block_kernel_gradient(x, dy, g)


# --------------------------------------------------------------------------------------------------- primitives


def _primitive(name: str, fast: Callable, vendor: Callable, plain: Callable) -> Primitive:
    """Returns the primitive of a bilinear map: `fast` on a CPU, `vendor` on accelerators, `plain` under vmap."""

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
_input_gradient = _primitive("of_input", _fast_input_gradient, _lax_input_gradient, _plain_input_gradient)
_kernel_gradient = _primitive("of_kernel", _fast_kernel_gradient, _lax_kernel_gradient, _plain_kernel_gradient)

# defbilinear takes the transposes with respect to the first and the second operand, as functions of (cotangent, first,
# second), where the operand in question is None.
ad.defbilinear(
    _values,
    lambda dy, x, kernel, **g: _input_gradient.bind(dy, kernel, **g),
    lambda dy, x, kernel, **g: _kernel_gradient.bind(x, dy, **g),
)
ad.defbilinear(
    _input_gradient,
    lambda x, dy, kernel, **g: _values.bind(x, kernel, **g),
    lambda x, dy, kernel, **g: _kernel_gradient.bind(x, dy, **g),
)
ad.defbilinear(
    _kernel_gradient,
    lambda kernel, x, dy, **g: _input_gradient.bind(dy, kernel, **g),
    lambda kernel, x, dy, **g: _values.bind(x, kernel, **g),
)
