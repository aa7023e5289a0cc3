"""Cache of compiled programs in the user's cache directory, shared by all runs.

jax's own variables take precedence: JAX_COMPILATION_CACHE_DIR names another directory, and
JAX_ENABLE_COMPILATION_CACHE=false disables the cache. jax's keys contain the program, the versions of jaxlib and of the
backend, XLA's flags, the options and the devices; a CPU's instruction set is added here, because machines may share a
home directory.
"""

import contextlib
import hashlib
import os
import pathlib
import platform
import warnings

import jax

from fedwin import files, jax_config
from fedwin.data import cache
from fedwin.models.convolution.onednn import cpu_features

# A larger cache is pruned at the next start, the least recently used programs first.
MOST_BYTES = 1 << 30


def enable() -> None:
    """Turns on jax's compilation cache, unless the user chose otherwise; call it before the first program."""
    # A full disk ends a run with one line; programs that can no longer be cached need none, wherever the cache is.
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache entry")
    settings = jax.config.values
    if settings["jax_compilation_cache_dir"] or not settings["jax_enable_compilation_cache"]:
        return
    directory = cache.cache_directory()
    if directory is None:
        warnings.warn(f"compiled programs and data sets are not cached: {cache.NO_DIRECTORY}", stacklevel=2)
        return
    folder = directory / "jit"
    try:
        own = folder / instruction_set()
        files.make_private(own)
        if not os.access(own, os.W_OK):
            return
        if (reason := files.unsafe(own)) is not None:
            warnings.warn(f"compiled programs are not cached: {reason}", stacklevel=2)
            return
        prune_cache(folder)
        own.chmod(0o700)  # jax writes the programs with the modes of the umask
    except OSError:
        return  # a run works without the cache, too
    jax_config.use_cache(own)


def instruction_set() -> str:
    """Returns a name of the instruction set of this machine's processor."""
    names = " ".join(cpu_features())
    return f"{platform.machine()}-{hashlib.blake2b(names.encode(), digest_size=6).hexdigest()}"


def prune_cache(folder: pathlib.Path) -> None:
    """Deletes programs of others, then the least recently used ones until MOST_BYTES are left in the cache's folder."""
    programs = []
    for path in folder.glob("*/*"):
        with contextlib.suppress(OSError):  # another process prunes, too
            stat = path.stat()
            if stat.st_uid not in (0, os.geteuid()) or (stat.st_mode & 0o022 and path.parent.stat().st_mode & 0o077):
                path.unlink()
                continue
            programs.append((max(stat.st_atime, stat.st_mtime), stat.st_size, path))
    total = sum(size for _, size, _ in programs)
    for _, size, path in sorted(programs):
        if total <= MOST_BYTES:
            return
        with contextlib.suppress(OSError):
            path.unlink()
        total -= size
