"""oneDNN's convolution, which jaxlib brings along for x86-64, and the derivatives made of it.

XLA runs it as a custom call with the geometry in JSON; jax has no function for it. Its kernels are those of PyTorch's
channels-last convolutions. There is a forward pass only, so that derivatives are forward passes, too:

    dx[b] = dy[b], spread out by the strides, * K turned around
    dK[i, (j, c)] = sum_{h, w} sum_b x'[h s + i, w s C + (j, c), b] dy[h, w, b]

In the second line x' is x with columns and channels in one axis and the images for channels, and dy is the kernel:
H x W places, C s apart along that axis. No patches are made, and a product has K C rows.

A call that XLA cannot make sense of ends the process, so only versions that were seen to work are trusted; jaxlib
cannot write programs with such calls down (see fedwin.models.convolution.program_cache); and without AVX-512 XLA's own convolutions are as fast.
FEDWIN_ONEDNN=off in the environment leaves everything to XLA.
"""

import contextlib
import functools
import json
import math
import os
import pathlib
import platform
import sys

import jax
import jax.numpy as jnp
from jaxlib import version as jaxlib_version

from fedwin.models.convolution import program_cache
from fedwin.models.convolution.im2col import Geometry, crops, pad

# jaxlib's versions, from this one on and before that one, whose custom call was tried.
TESTED_VERSIONS = (0, 8, 1), (0, 12, 1)
# Multiply-adds; a call costs some 30 us, in which XLA does smaller convolutions itself.
LEAST_WORK = 4_000_000
# Networks for tiny images do without, however many these are: that their program is kept between starts is worth more.
LEAST_WORK_PER_IMAGE = 100_000
SWITCH = "FEDWIN_ONEDNN"


@functools.cache
def is_supported() -> bool:
    """Whether this machine's jaxlib has the custom call, and its processor what makes that the faster way."""
    version = tuple(int(part) for part in jaxlib_version.__version__.split(".")[:3] if part.isdigit())
    known = (
        sys.platform == "linux"
        and platform.machine() == "x86_64"
        and TESTED_VERSIONS[0] <= version < TESTED_VERSIONS[1]
    )
    return known and "avx512f" in cpu_features()


def is_available() -> bool:
    """Whether a program that is being traced now may call oneDNN."""
    asked = is_supported() and os.environ.get(SWITCH) != "off" and program_cache.uncached_allowed()
    # What is for a CPU is traced for accelerators, too, whose programs are to be kept.
    return asked and jax.default_backend() == "cpu"


def suits(images: int, channels: tuple[int, int], g: Geometry, dtype) -> bool:
    """Whether oneDNN has such a convolution (of dense images and windows, in float32) and it is worth a call.

    Args:
      images: how many.
      channels: of x and of y.
      g: what the convolution looks like.
      dtype: of all arrays.
    """
    dense = all(step == 1 for step in (*g.inside, *g.dilation)) and not crops(g.padding)
    each = math.prod(g.out) * math.prod(g.window) * math.prod(channels)
    worth = min(g.out) > 0 and each >= LEAST_WORK_PER_IMAGE and images * each >= LEAST_WORK
    return dtype == jnp.float32 and len(g.window) == 2 and dense and worth


def _call(x, kernel, layout: str, shape, padding, strides=(1, 1), dilation=(1, 1)):
    """The convolution of x [B, H, W, C] with a kernel of the layout ("HWIO" or the like); `shape` is the result's."""
    program_cache.do_not_cache()
    images = {"batch_dim": 0, "feature_dim": 3, "spatial_dims": [1, 2]}
    own = {"input_feature_dim": layout.index("I"), "output_feature_dim": layout.index("O")}
    low, high = zip(*padding, strict=True)
    geometry = {
        "dims": 4,
        "feature_groups": 1,
        "input": {"data": images},
        "output": {"data": images},
        "kernel": {"filter": own | {"spatial_dims": [layout.index("H"), layout.index("W")]}},
        "window": {"pad_left": low, "pad_right": high, "strides": strides, "window_dilations": dilation},
    }
    convolved = jax.ffi.ffi_call(
        "__onednn$convolution",
        jax.ShapeDtypeStruct(shape, x.dtype),
        custom_call_api_version=2,
        legacy_backend_config=json.dumps({"onednn_conv_config": geometry}),
    )
    return convolved(x, kernel)


def values(x, kernel, g: Geometry):
    """x * K."""
    return _call(x, kernel, "HWIO", (len(x), *g.out, kernel.shape[-1]), g.padding, g.strides)


def of_input(dy, kernel, g: Geometry):
    """The cotangent, spread out by the strides, convolved with the kernel turned around."""
    edges = g.turned_padding
    if max(g.strides) > 1 or crops(edges):
        dy, edges = pad(dy, edges, tuple(s - 1 for s in g.strides)), ((0, 0), (0, 0))
    return _call(dy, kernel[::-1, ::-1], "HWOI", (len(dy), *g.image, kernel.shape[-2]), edges)


def of_kernel(x, dy, g: Geometry):
    """The images, columns and channels side by side, convolved with the cotangent over rows, columns and images."""
    (height, width), (down, along), channels = g.window, g.strides, x.shape[-1]
    edges = []
    for n, out, k, s, (low, _) in zip(g.image, g.out, g.window, g.strides, g.padding, strict=True):
        edges.append((low, (out - 1) * s + k - low - n))
    # What no window reaches is cut off; the rest of the padding is the call's.
    rows, columns = (n + min(0, high) for n, (_, high) in zip(g.image, edges, strict=True))
    x = x[:, :rows, :columns].reshape(len(x), rows, columns * channels).transpose(1, 2, 0)[None]
    (top, bottom), (left, right) = ((low, max(0, high)) for low, high in edges)
    padding, dilation = ((top, bottom), (left * channels, right * channels)), (down, along * channels)
    found = _call(x, dy, "IHWO", (1, height, width * channels, dy.shape[-1]), padding, dilation=dilation)
    return found.reshape(height, width, channels, dy.shape[-1])


@functools.cache
def cpu_features() -> tuple[str, ...]:
    """Returns the names of the processor's instruction sets as Linux lists them; elsewhere what Python knows of it."""
    with contextlib.suppress(OSError):
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            name, _, listed = line.partition(":")
            if name.strip().lower() in ("flags", "features"):
                return tuple(listed.split())
    return tuple(platform.processor().split())
