"""Memory and disk space of this host."""

import os
import pathlib
import shutil
from typing import NamedTuple

import jax

# Free bytes to assume on a disk without a limit.
UNLIMITED_BYTES = 1 << 62
_CGROUP = pathlib.Path("/sys/fs/cgroup")


class Memory(NamedTuple):
    """Available bytes; None if unknown.

    Attributes:
      host: main memory.
      device: memory of one accelerator; None if the devices are CPUs, which use main memory.
    """

    host: int | None
    device: int | None = None


def available() -> Memory:
    """Returns the memory that is available now: main memory, and that of the first device if it is an accelerator."""
    limits = [limit for limit in (_system_memory(), _cgroup_memory()) if limit is not None]
    stats = None if jax.default_backend() == "cpu" else jax.local_devices()[0].memory_stats()
    return Memory(min(limits, default=None), (stats or {}).get("bytes_limit"))


def total_memory() -> int | None:
    """Returns the total main memory of this process in bytes, which does not change during a run; None if unknown."""
    limits = [limit for limit in (_installed_memory(), _integer(_CGROUP / "memory.max")) if limit is not None]
    return min(limits, default=None)


def free_disk(directory: str | os.PathLike) -> int:
    """Returns the free bytes of the disk of a directory, which need not exist; UNLIMITED_BYTES if it has no limit."""
    path = pathlib.Path(directory).absolute()
    usage = shutil.disk_usage(next(folder for folder in (path, *path.parents) if os.path.exists(folder)))
    # A tmpfs without a limit reports no blocks at all.
    return usage.free if usage.total else UNLIMITED_BYTES


def _installed_memory() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def _system_memory() -> int | None:
    """Returns the available bytes of the host, or all of them if the available part is unknown."""
    try:
        for line in pathlib.Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return _installed_memory()


def _integer(path: pathlib.Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # "max": no limit
        return None


def _cgroup_memory(folder: pathlib.Path = _CGROUP) -> int | None:
    """Returns the bytes that a container (cgroup) may still allocate; its cached file pages count as available."""
    limit, used = _integer(folder / "memory.max"), _integer(folder / "memory.current")
    if limit is None or used is None:
        return None
    try:
        stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    except OSError:
        return None
    return max(limit - used + int(stat.get("inactive_file", 0)), 0)
