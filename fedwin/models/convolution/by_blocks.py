"""A convolution and its derivatives on a CPU, of patches of a few images at a time, so that these stay in the cache."""

import math

import jax.numpy as jnp
from jax import lax

from fedwin.models.convolution.geometry import Geometry
from fedwin.models.convolution.patches import pad, patches, product

# Patches that are made at a time: about half of a core's second-level cache.
BLOCK_BYTES = 1 << 20
# Windows of so many places are wide: 5 x 5 is, 3 x 3 is not. Measured in whole training steps, see BUILD_NOTES.md.
WIDE = 16
# Images of fewer channels (grey, colour) are not worth it.
FEW_CHANNELS = 8


def is_wide(kernel, g: Geometry) -> bool:
    """Whether values and the gradient of x are faster so than as lax computes them."""
    dense = all(step == 1 for step in (*g.strides, *g.inside, *g.dilation))
    return dense and math.prod(g.window) >= WIDE and kernel.shape[-2] >= FEW_CHANNELS


def _in_blocks(images: int, bytes_each: int) -> int:
    """Returns how many images make a block: the most that fit and divide them all."""
    fitting = BLOCK_BYTES // bytes_each
    return next(n for n in range(max(1, min(fitting, images)), 0, -1) if images % n == 0)


def _split(a, each: int):
    return a.reshape(len(a) // each, each, *a.shape[1:])


def _over_blocks(made, images, each: int):
    """Returns `made` of blocks of images, one after the other."""
    found = lax.scan(lambda _, block: (None, made(block)), None, _split(images, each))[1]
    return found.reshape(len(images), *found.shape[2:])


def _patch_bytes(positions: tuple, kernel) -> int:
    return math.prod(positions) * math.prod(kernel.shape[:-1]) * kernel.dtype.itemsize


def values(x, kernel, g: Geometry):
    """patches(x) K; wide windows only."""
    x = pad(x, g.padding)
    out = tuple(n - k + 1 for n, k in zip(x.shape[1:-1], g.window, strict=True))
    each = _in_blocks(len(x), _patch_bytes(out, kernel))
    return _over_blocks(lambda x: product(x, kernel, g.strides, g.dilation, g.precision), x, each)


def of_input(dy, kernel, g: Geometry):
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


def of_kernel(x, dy, g: Geometry):
    """patches(x)^T dy, summed over blocks of images."""
    x = pad(x, g.padding, tuple(i - 1 for i in g.inside))
    images, depth = len(dy), math.prod(g.window) * x.shape[-1]

    def block(x, dy):
        columns = patches(x, g.window, g.strides, g.dilation)
        # dy comes first: the product with the longer rows on the right is the faster one.
        return lax.dot_general(dy, columns, (((0, 1, 2), (0, 1, 2)), ((), ())), precision=g.precision)

    each = _in_blocks(images, math.prod(dy.shape[1:-1]) * depth * x.dtype.itemsize)
    zeros = jnp.zeros((dy.shape[-1], depth), x.dtype)
    blocks = (_split(x, each), _split(dy, each))
    total = lax.scan(lambda total, part: (total + block(*part), None), zeros, blocks)[0]
    # The barrier keeps XLA from turning the product of a single block around again.
    return lax.optimization_barrier(total).T.reshape(*g.window, x.shape[-1], dy.shape[-1])
