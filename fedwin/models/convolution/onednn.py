"""oneDNN's convolution, LSTMs and group normalization on a CPU, called through jax's foreign functions (jax.ffi).

    y[b, h, w] = sum_{i, j} x[b, h s + i d, w s + j d] K[i, j],  and the gradients of <y, dy> in x and in K

`onednn.cc` calls oneDNN's primitives for the values and for both gradients, and has the loops of
`fedwin.models.recurrence` and `fedwin.models.group_norm`. It is compiled on first use into the user's cache directory,
with the headers of jaxlib and of oneDNN 3, which the extra `cpu` installs (packages `onednn-cpu-gomp` and
`onednn-devel-cpu-gomp`). Programs that call it are cached by jax like any others. Without oneDNN or a C++ compiler, XLA
computes all of it, and `status` states the reason.

FEDWIN_ONEDNN=off in the environment leaves all to XLA; FEDWIN_ONEDNN=cached uses a library that exists, and compiles
none.
"""

import contextlib
import ctypes
import functools
import hashlib
import math
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import warnings

import jax
import jax.numpy as jnp
import numpy as np
from jaxlib import version as jaxlib_version

from fedwin import files
from fedwin.data.cache import cache_directory
from fedwin.models.convolution.im2col import Geometry, crops

SWITCH = "FEDWIN_ONEDNN"
SOURCE = pathlib.Path(__file__).with_name("onednn.cc")
# Multiply-adds below which XLA computes a convolution faster than a call of oneDNN.
LEAST_WORK = 4_000_000
_VALUES, _INPUT_GRADIENT, _KERNEL_GRADIENT = range(3)
_COMPILE_SECONDS = 60
_SILENT_SECONDS = 5
_HASH = len(files.digest_of(b""))
_OPTIONS = ("-std=c++17", "-O2", "-fPIC", "-shared", "-fopenmp", "-march=native", "-mprefer-vector-width=512")


class Unavailable(Exception):
    """Why oneDNN cannot be called, as a clause."""


class Missing(Unavailable):
    """What is not installed, and how to install it."""


@functools.cache
def cpu_features() -> tuple[str, ...]:
    """Returns the processor's instruction sets as Linux names them; on other systems, the name of the processor."""
    with contextlib.suppress(OSError):
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            name, _, values = line.partition(":")
            if name.strip().lower() in ("flags", "features"):
                return tuple(values.split())
    return tuple(platform.processor().split())


def find_onednn() -> tuple[pathlib.Path, pathlib.Path]:
    """Returns the directory of oneDNN's headers and the path of its library; raises Missing without oneDNN 3."""
    for root in map(pathlib.Path, (sys.prefix, sysconfig.get_path("data"), "/usr/local", "/usr")):
        folders = [root / name for name in ("lib", "lib64", f"lib/{platform.machine()}-linux-gnu")]
        libraries = [path for folder in folders if (path := folder / "libdnnl.so.3").exists()]
        if libraries and (root / "include/oneapi/dnnl/dnnl.hpp").is_file():
            return root / "include", libraries[0]
    raise Missing("oneDNN 3 is not installed (pip install 'fedwin[cpu]')")


def find_compiler() -> str:
    """Returns the C++ compiler: $CXX, c++, g++ or clang++; raises Missing if there is none."""
    for name in (os.environ.get("CXX"), "c++", "g++", "clang++"):
        if name and (path := shutil.which(name)):
            return path
    raise Missing("there is no C++ compiler (install g++)")


def library_path(onednn: pathlib.Path) -> pathlib.Path:
    """Returns the path of the compiled library, named by all that decides it; may raise Unavailable."""
    if (cache := cache_directory()) is None:
        raise Unavailable("there is no cache directory; set FEDWIN_CACHE_DIR")
    origin = (SOURCE.read_text(), jaxlib_version.__version__, str(onednn.resolve()), str(onednn.stat().st_size))
    parts = (*origin, *_OPTIONS, *cpu_features())  # it is compiled for them
    digest = hashlib.blake2b("\n".join(parts).encode(), digest_size=8).hexdigest()
    return cache / "native" / f"onednn-{digest}.so"


def is_intact(library: pathlib.Path) -> bool:
    """Whether a library exists and ends with the hash of the rest of it, which the loader of libraries ignores."""
    contents = files.read_bytes(library) if library.exists() else b""
    return contents[-_HASH:] == files.digest_of(contents[:-_HASH]).encode()


def compile_library(headers: pathlib.Path, onednn: pathlib.Path, library: pathlib.Path) -> None:
    """Compiles `onednn.cc` (about four seconds), or raises Unavailable; another process may do the same meanwhile."""
    compiler = find_compiler()
    include = ["-isystem", str(headers), "-isystem", jax.ffi.include_dir()]
    link = [str(onednn), f"-Wl,-rpath,{onednn.parent}"]
    try:
        files.make_private(library.parent)
        with tempfile.TemporaryDirectory(dir=library.parent) as folder:
            for other in library.parent.glob("tmp*"):  # left by a process that was killed
                with contextlib.suppress(FileNotFoundError):  # another process may remove it, too
                    if os.stat(folder).st_mtime - other.stat().st_mtime > 2 * _COMPILE_SECONDS:
                        shutil.rmtree(other, ignore_errors=True)
            made = pathlib.Path(folder) / library.name
            _run_compiler([compiler, *_OPTIONS, str(SOURCE), *include, *link, "-o", str(made)], folder)
            contents = made.read_bytes()
            files.replace_bytes(library, contents + files.digest_of(contents).encode())
    except OSError as error:
        raise Unavailable(f"{library} can't be made ({files.failure_reason(error)})") from error


def _run_compiler(command: list[str], folder: str) -> None:
    """Runs a compiler, with a folder for temporary files; raises Unavailable if it fails or hangs."""
    # The utility ends what the compiler has started, too, even if this process was killed in the meantime.
    limit = ["timeout", "--kill-after=5", str(_COMPILE_SECONDS)]
    environment, pipe = os.environ | {"TMPDIR": folder, "LC_ALL": "C"}, subprocess.PIPE
    with subprocess.Popen(
        [*limit, *command], stdout=pipe, stderr=subprocess.STDOUT, env=environment, errors="replace"
    ) as process:
        try:
            output, _ = process.communicate(timeout=_SILENT_SECONDS)
        except subprocess.TimeoutExpired:
            most = f"{_COMPILE_SECONDS} s at most; {SWITCH}=off does without"
            print(f"{command[0]} compiles {SOURCE.name}, once ({most})", file=sys.stderr, flush=True)
            output, _ = process.communicate()
    if process.returncode in (124, 137):
        raise Unavailable(f"{command[0]} takes more than {_COMPILE_SECONDS} s to compile {SOURCE.name}")
    if process.returncode:
        first = next((line for line in output.splitlines() if "error" in line), "no message")
        raise Unavailable(f"{command[0]} fails to compile {SOURCE.name} ({first[:200]})")


def locate(switch: str) -> tuple[pathlib.Path, pathlib.Path, pathlib.Path]:
    """Returns the directory of oneDNN's headers, its library, and the compiled one, which may not exist yet.

    Raises:
      Unavailable: why it can be neither called nor compiled; compiles nothing.
    """
    if switch == "off":
        raise Unavailable(f"{SWITCH}=off")
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise Unavailable(f"oneDNN is used on x86-64 Linux only, and this is {platform.machine()} {sys.platform}")
    headers, onednn = find_onednn()
    library = library_path(onednn)
    try:
        if (reason := files.unsafe(library)) is not None:
            raise Unavailable(f"the compiled library is refused: {reason}")
        if not is_intact(library):
            if switch == "cached":
                raise Unavailable(f"{library.name} has not been compiled, or is damaged, and {SWITCH}=cached")
            find_compiler()
    except OSError as error:
        raise Unavailable(f"{library} can't be read ({error.strerror})") from error
    return headers, onednn, library


@functools.cache
def _load(switch: str) -> str:
    """Compiles and registers the library; returns the name of the XLA target, or raises Unavailable."""
    headers, onednn, library = locate(switch)
    if not is_intact(library):
        compile_library(headers, onednn, library)
    target = f"fedwin_{library.stem}"
    try:
        handlers = ctypes.cdll.LoadLibrary(str(library))
        jax.ffi.register_ffi_target(target, jax.ffi.pycapsule(handlers.FedwinConvolve), platform="cpu")
        jax.ffi.register_ffi_target(f"{target}_lstm", jax.ffi.pycapsule(handlers.FedwinRecur), platform="cpu")
        jax.ffi.register_ffi_target(f"{target}_norm", jax.ffi.pycapsule(handlers.FedwinNormalize), platform="cpu")
    except Exception as error:  # jax's own for a library that was made for another version of it
        raise Unavailable(f"{library} can't be loaded ({error}); remove it") from error
    return target


@functools.cache
def _status(switch: str) -> str | None:
    try:
        _load(switch)
    except Unavailable as reason:
        if missing() is None and switch not in ("off", "cached"):  # the run's header lists missing requirements
            warnings.warn(f"convolutions and LSTMs are XLA's: {reason}", stacklevel=2)
        return str(reason)
    return None


def missing() -> str | None:
    """Returns what would have to be installed to call oneDNN on this machine; None if nothing. Compiles nothing."""
    try:
        locate(os.environ.get(SWITCH) or "on")
    except Unavailable as reason:
        return str(reason) if isinstance(reason, Missing) else None
    return None


def status() -> str | None:
    """Returns None if oneDNN can be called, else the reason; compiles the library if it does not exist yet."""
    return _status(os.environ.get(SWITCH) or "on")


def is_available() -> bool:
    """Whether the program being traced may call oneDNN: it runs on a CPU, and the library is there."""
    # The CPU's branch is traced for accelerators, too, which need no library.
    return jax.default_backend() == "cpu" and status() is None


def suits(images: int, channels: tuple[int, int], g: Geometry, dtype) -> bool:
    """Whether oneDNN has the convolution, in a type that the processor has, and it is large enough for a call.

    The `channels` are those of x and of y.
    """
    has_type = dtype == jnp.float32 or (dtype == jnp.bfloat16 and "avx512_bf16" in cpu_features())
    plain = len(g.window) == 2 and all(step == 1 for step in g.inside) and not crops(g.padding)
    work = images * math.prod(g.out) * math.prod(g.window) * math.prod(channels)
    return has_type and plain and min(g.out) > 0 and work >= LEAST_WORK


def threads() -> int:
    """Returns the threads that a call may use: the cores of this process, divided among its devices."""
    return max(1, len(os.sched_getaffinity(0)) // jax.local_device_count())


def _call(kind: int, a, b, shape: tuple[int, ...], dtype, g: Geometry):
    low, high = zip(*g.padding, strict=True)
    window = np.array([*g.strides, *(d - 1 for d in g.dilation), *low, *high], np.int64)
    call = jax.ffi.ffi_call(_load(os.environ.get(SWITCH) or "on"), jax.ShapeDtypeStruct(shape, dtype))
    return call(a, b, kind=np.int64(kind), window=window, threads=np.int64(threads()))


def values(x, kernel, g: Geometry):
    """Returns the convolution of x [B, H, W, C] with the kernel [*window, C, C_out]."""
    return _call(_VALUES, x, kernel, (len(x), *g.out, kernel.shape[-1]), x.dtype, g)


def input_gradient(dy, kernel, g: Geometry):
    """Returns the gradient of x, [B, *image, C], from that of y."""
    return _call(_INPUT_GRADIENT, dy, kernel, (len(dy), *g.image, kernel.shape[-2]), dy.dtype, g)


def kernel_gradient(x, dy, g: Geometry):
    """Returns the gradient of the kernel, [*window, C, C_out], from that of y; summed in float32."""
    gradient = _call(_KERNEL_GRADIENT, x, dy, (*g.window, x.shape[-1], dy.shape[-1]), jnp.float32, g)
    return gradient.astype(x.dtype)


def _call_for_clients(name: str, shapes, operands, **attributes):
    target = f"{_load(os.environ.get(SWITCH) or 'on')}_{name}"
    call = jax.ffi.ffi_call(target, shapes, vmap_method="broadcast_all")
    return call(*operands, threads=np.int64(threads()), **attributes)


def recurrence(shapes, *operands):
    """Returns arrays of the given shapes and of float32: a loop of `fedwin.models.recurrence` over all time steps."""
    return _call_for_clients("lstm", shapes, operands)


def normalization(shapes, *operands, groups: int, epsilon: float, relu: bool):
    """Returns arrays of the given shapes and of float32: values or gradients of `fedwin.models.group_norm`."""
    return _call_for_clients(
        "norm", shapes, operands, groups=np.int64(groups), epsilon=np.float32(epsilon), relu=np.bool_(relu)
    )
