"""Compiled programs are kept between starts of the binaries, in the user's cache directory.

jax's own variables come first: JAX_COMPILATION_CACHE_DIR names another directory, JAX_ENABLE_COMPILATION_CACHE=false
keeps nothing. What jax keys a program by is the program, the versions of jaxlib and of the backend, XLA's flags, the
options and the devices; a CPU's instruction set is added here, because machines may share a home directory.
"""

import contextlib
import hashlib
import os
import pathlib
import platform

import jax

from fedwin.data.places import cache_dir
from fedwin.models.convolution.processor import instructions

# More than this is pruned at the next start, what was unused for longest first.
MOST_BYTES = 1 << 30


def keep_programs() -> None:
    """Has jax keep what it compiles, unless the user chose otherwise; call it before the first program."""
    known = jax.config.values
    if known["jax_compilation_cache_dir"] or not known["jax_enable_compilation_cache"]:
        return
    folder = cache_dir() / "jit"
    try:
        own = folder / processor()
        own.mkdir(parents=True, exist_ok=True)
        prune(folder)
    except OSError:
        return  # no room for a cache, no cache
    if not os.access(own, os.W_OK):
        return
    jax.config.update("jax_compilation_cache_dir", str(own))
    # A start compiles dozens of programs, most of them in less than the second that jax waits for by default.
    if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def processor() -> str:
    """Returns a name of the instruction set of this machine's processor."""
    known = " ".join(instructions())
    return f"{platform.machine()}-{hashlib.blake2b(known.encode(), digest_size=6).hexdigest()}"


def prune(folder: pathlib.Path, most: int = MOST_BYTES) -> None:
    """Deletes the programs that were unused for longest until at most so many bytes are left below `folder`."""
    found = []
    for path in folder.glob("*/*"):
        with contextlib.suppress(OSError):  # another process prunes too
            about = path.stat()
            found.append((max(about.st_atime, about.st_mtime), about.st_size, path))
    left = sum(size for _, size, _ in found)
    for _, size, path in sorted(found):
        if left <= most:
            return
        with contextlib.suppress(OSError):
            path.unlink()
        left -= size
