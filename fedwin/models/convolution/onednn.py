"""oneDNN's convolution on x86-64 CPUs, its derivatives, and the conditions for calling it.

jaxlib contains oneDNN's kernels (those of PyTorch's channels-last convolutions), but jax has no function for them: XLA
runs them as a custom call with the geometry in JSON. There is a forward pass only, so both derivatives are forward
passes, too:

    dx[b] = (dy[b] dilated by the strides) * (K flipped)
    dK[i, (j, c)] = sum_{h, w} sum_b x'[h s + i, w s C + (j, c), b] dy[h, w, b]

In the second line x' is x with columns and channels merged into one axis and the images as channels, and dy is the
kernel, with H x W positions that are C s apart along that axis. No patches are materialized.

A custom call that XLA does not understand ends the process, so only tested versions of jaxlib are used. jaxlib cannot
serialize programs with such calls, so these stay out of the persistent cache (fedwin.models.convolution.program_cache).
Without AVX-512, XLA's own convolutions are as fast. FEDWIN_ONEDNN=off in the environment disables oneDNN.
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

# Versions of jaxlib with a tested custom call: from the first (inclusive) to the second (exclusive).
TESTED_VERSIONS = (0, 8, 1), (0, 12, 1)
# Multiply-adds; a call costs some 30 us, in which XLA computes smaller convolutions itself.
LEAST_WORK = 4_000_000
# Multiply-adds per image; networks for tiny images gain more from the persistent cache than from oneDNN.
LEAST_WORK_PER_IMAGE = 100_000
SWITCH = "FEDWIN_ONEDNN"


@functools.cache
def cpu_features() -> tuple[str, ...]:
    """Returns the processor's instruction sets as Linux names them; on other systems, the name of the processor."""
    with contextlib.suppress(OSError):
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            name, _, values = line.partition(":")
            if name.strip().lower() in ("flags", "features"):
                return tuple(values.split())
    return tuple(platform.processor().split())


@functools.cache
def is_supported() -> bool:
    """Whether this machine has a tested version of jaxlib and a processor with AVX-512."""
    version = tuple(int(part) for part in jaxlib_version.__version__.split(".")[:3] if part.isdigit())
    is_tested = (
        sys.platform == "linux"
        and platform.machine() == "x86_64"
        and TESTED_VERSIONS[0] <= version < TESTED_VERSIONS[1]
    )
    return is_tested and "avx512f" in cpu_features()


def is_available() -> bool:
    """Whether the program being traced may call oneDNN."""
    allowed = is_supported() and os.environ.get(SWITCH) != "off" and program_cache.uncached_allowed()
    # The CPU's branch is traced for accelerators, too, whose programs should be cached.
    return allowed and jax.default_backend() == "cpu"


def suits(images: int, channels: tuple[int, int], g: Geometry, dtype) -> bool:
    """Whether oneDNN has the convolution (without dilation or cropping, in float32) and it is large enough for a call.

    Args:
      images: number of images.
      channels: channels of x and of y.
      g: geometry of the convolution.
      dtype: dtype of all arrays.
    """
    dense = all(step == 1 for step in (*g.inside, *g.dilation)) and not crops(g.padding)
    work = math.prod(g.out) * math.prod(g.window) * math.prod(channels)
    is_large = min(g.out) > 0 and work >= LEAST_WORK_PER_IMAGE and images * work >= LEAST_WORK
    return dtype == jnp.float32 and len(g.window) == 2 and dense and is_large


def _call(x, kernel, layout: str, shape, padding, strides=(1, 1), dilation=(1, 1)):
    """Convolves x [B, H, W, C] with a kernel of a layout such as "HWIO"; `shape` is that of the result."""
    program_cache.do_not_cache()
    images = {"batch_dim": 0, "feature_dim": 3, "spatial_dims": [1, 2]}
    features = {"input_feature_dim": layout.index("I"), "output_feature_dim": layout.index("O")}
    low, high = zip(*padding, strict=True)
    geometry = {
        "dims": 4,
        "feature_groups": 1,
        "input": {"data": images},
        "output": {"data": images},
        "kernel": {"filter": features | {"spatial_dims": [layout.index("H"), layout.index("W")]}},
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
    """Returns the convolution of x [B, H, W, C] with the kernel [*window, C, C_out]."""
    return _call(x, kernel, "HWIO", (len(x), *g.out, kernel.shape[-1]), g.padding, g.strides)


def input_gradient(dy, kernel, g: Geometry):
    """Returns the gradient of x: the cotangent, dilated by the strides, convolved with the flipped kernel."""
    edges = g.transposed_padding
    if max(g.strides) > 1 or crops(edges):
        dy, edges = pad(dy, edges, tuple(s - 1 for s in g.strides)), ((0, 0), (0, 0))
    return _call(dy, kernel[::-1, ::-1], "HWOI", (len(dy), *g.image, kernel.shape[-2]), edges)


def kernel_gradient(x, dy, g: Geometry):
    """Returns the gradient of the kernel: x' of the module's docstring convolved with the cotangent."""
    (height, width), (down, along), channels = g.window, g.strides, x.shape[-1]
    edges = []
    for n, out, k, s, (low, _) in zip(g.image, g.out, g.window, g.strides, g.padding, strict=True):
        edges.append((low, (out - 1) * s + k - low - n))
    # Rows and columns that no window reaches are cropped; the rest of the padding is left to the call.
    rows, columns = (n + min(0, high) for n, (_, high) in zip(g.image, edges, strict=True))
    x = x[:, :rows, :columns].reshape(len(x), rows, columns * channels).transpose(1, 2, 0)[None]
    (top, bottom), (left, right) = ((low, max(0, high)) for low, high in edges)
    padding, dilation = ((top, bottom), (left * channels, right * channels)), (down, along * channels)
    gradient = _call(x, dy, "IHWO", (1, height, width * channels, dy.shape[-1]), padding, dilation=dilation)
    return gradient.reshape(height, width, channels, dy.shape[-1])
