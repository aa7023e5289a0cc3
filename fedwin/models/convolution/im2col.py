"""Geometry of a convolution, patches of images, and convolutions as matrix products of patches (im2col)."""

import itertools
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax


def crops(padding) -> bool:
    """Whether padding, (low, high) per axis, has negative entries, which crop."""
    return any(edge < 0 for edges in padding for edge in edges)


class Geometry(NamedTuple):
    """Static sizes of a convolution; tuples have one entry per spatial axis.

    Attributes:
      padding: (low, high) per axis.
      inside: dilation of x, 1 for none.
      dilation: dilation of K, 1 for none.
    """

    image: tuple
    window: tuple
    strides: tuple
    padding: tuple
    inside: tuple
    dilation: tuple
    precision: Any

    @property
    def out(self) -> tuple:
        """Sizes of the result y."""
        return tuple(
            ((n - 1) * a + 1 + low + high - (k - 1) * d - 1) // s + 1
            for n, k, s, (low, high), a, d in zip(
                self.image, self.window, self.strides, self.padding, self.inside, self.dilation, strict=True
            )
        )

    @property
    def transposed_padding(self) -> tuple:
        """Padding of the transposed convolution: of dy, dilated by the strides, with the flipped kernel, giving dx."""
        return tuple(
            ((k - 1) * d - low, low + (n - 1) * a - (out - 1) * s)
            for n, out, k, s, a, d, (low, _) in zip(
                self.image, self.out, self.window, self.strides, self.inside, self.dilation, self.padding, strict=True
            )
        )


def pad(x, low_high, inside=None, value=0):
    """Pads and dilates the spatial axes of x [B, *spatial, C] with a value.

    Args:
      low_high: (low, high) per spatial axis; negative values crop.
      inside: dilation per spatial axis, 1 for none; None: none of any axis.
    """
    inside = inside or (1,) * len(low_high)
    if all(step == 1 for step in inside) and all(tuple(p) == (0, 0) for p in low_high):
        return x
    config = [(0, 0, 0), *((lo, hi, step - 1) for (lo, hi), step in zip(low_high, inside)), (0, 0, 0)]
    return lax.pad(x, jnp.full((), value, x.dtype), config)


def taps(x, window, strides, dilation):
    """Yields one strided slice [B, *out, C] of x per position in the window, in row-major order."""
    out = [(n - d * (k - 1) - 1) // s + 1 for n, k, s, d in zip(x.shape[1:-1], window, strides, dilation)]
    for position in itertools.product(*map(range, window)):
        offset = [p * d for p, d in zip(position, dilation)]
        limit = [o + (n - 1) * s + 1 for o, n, s in zip(offset, out, strides)]
        yield lax.slice(x, (0, *offset, 0), (x.shape[0], *limit, x.shape[-1]), (1, *strides, 1))


def patches(x, window, strides, dilation):
    """Returns the windows of x [B, *spatial, C] as rows, without padding.

    Returns:
      [B, *out, prod(window) * C], windows in row-major order. A window of one element with stride 1 returns x itself.
    """
    slices = list(taps(x, window, strides, dilation))
    return slices[0] if len(slices) == 1 else jnp.concatenate(slices, -1)


def without_idle_taps(kernel, g: Geometry):
    """Returns (kernel, geometry) of the same convolution without the kernel's borders that meet nothing but padding.

    Small images are padded by more than they have: of a 3 x 3 kernel on one pixel, the middle alone is multiplied.
    """
    padding, keep = list(g.padding), []
    for axis, (n, out, k, s, a, d) in enumerate(zip(g.image, g.out, g.window, g.strides, g.inside, g.dilation)):
        low, high = padding[axis]
        span = (n - 1) * a + 1
        met = [tap for tap in range(k) if any(0 <= p * s + tap * d - low < span for p in range(out))] or range(k)
        first, after = met[0], met[-1] + 1
        less = (low - first * d, high - (k - after) * d)
        if min(less) < 0:
            first, after, less = 0, k, (low, high)
        padding[axis] = less
        keep.append(slice(first, after))
    idle = any(part != slice(0, k) for part, k in zip(keep, g.window, strict=True))
    kernel = kernel[tuple(keep)] if idle else kernel
    return kernel, g._replace(window=kernel.shape[:-2], padding=tuple(padding))


def product(x, kernel, strides, dilation, precision):
    """Returns the convolution without padding of x [B, *spatial, C] and kernel [*window, C, C_out]."""
    columns = patches(x, kernel.shape[:-2], strides, dilation)
    rows, weights = columns.reshape(-1, columns.shape[-1]), kernel.reshape(-1, kernel.shape[-1])
    flat = jnp.matmul(rows, weights, precision=precision)
    return flat.reshape(*columns.shape[:-1], kernel.shape[-1])


def depthwise(x, kernel, strides, dilation):
    """Returns the depthwise convolution without padding, as a sum of shifted products.

        y[..., c m + t] = sum_{i, j} x[..., c] K[i, j, 0, c m + t]

    x is [B, *spatial, C], the kernel [*window, 1, C m].
    """
    multiplier, total = kernel.shape[-1] // x.shape[-1], None
    # In bfloat16, the gradient of the kernel would be summed in that.
    wide = jnp.promote_types(x.dtype, jnp.float32) if jnp.issubdtype(x.dtype, jnp.floating) else x.dtype
    weights = kernel.reshape(-1, kernel.shape[-1]).astype(wide)
    for tap, weight in zip(taps(x, kernel.shape[:-2], strides, dilation), weights):
        tap = tap if multiplier == 1 else jnp.repeat(tap, multiplier, axis=-1)
        total = tap * weight if total is None else total + tap * weight
    return jnp.asarray(total, x.dtype)


def grouped(x, kernel, strides, dilation, groups, precision):
    """Returns the grouped convolution without padding, as one matrix product batched over the groups.

    x is [B, *spatial, C], the kernel [*window, C / groups, C_out].
    """
    columns = patches(x, kernel.shape[:-2], strides, dilation)
    split = columns.reshape(*columns.shape[:-1], -1, groups, x.shape[-1] // groups)
    weights = kernel.reshape(-1, kernel.shape[-2], groups, kernel.shape[-1] // groups)
    y = jnp.einsum("...kgi,kigo->...go", split, weights, precision=precision)
    return y.reshape(*columns.shape[:-1], kernel.shape[-1])
