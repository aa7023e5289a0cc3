"""What memory this machine has, and what room on the disk."""

import os
import pathlib
import shutil
from typing import NamedTuple

import jax

# What is free where nobody says how much there is.
MOST_BYTES = 1 << 62


class Memory(NamedTuple):
    """Bytes that are available; None where the system does not say.

    Attributes:
      host: main memory.
      device: memory of one accelerator; None also where devices are CPUs, which use main memory.
    """

    host: int | None
    device: int | None = None


def available() -> Memory:
    """Returns what this machine has now: of main memory, and of the first device if that has memory of its own."""
    limits = [limit for limit in (_system_memory(), _group_memory()) if limit is not None]
    stats = None if jax.default_backend() == "cpu" else jax.local_devices()[0].memory_stats()
    return Memory(min(limits, default=None), (stats or {}).get("bytes_limit"))


def free_disk(directory) -> int:
    """Returns the bytes that are free where a directory is, or would be made; a disk without a limit has MOST_BYTES."""
    where = pathlib.Path(directory).absolute()
    found = shutil.disk_usage(next(place for place in (where, *where.parents) if os.path.exists(place)))
    # A tmpfs without a limit says that it has no blocks at all.
    return found.free if found.total else MOST_BYTES


def _system_memory() -> int | None:
    try:
        for line in pathlib.Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:  # all there is, where nothing says what is free of it
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def total_memory() -> int | None:
    """Returns all the main memory that this process may ever have: the same whenever it is asked for."""
    limits = []
    try:
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
        limits.append(int((pathlib.Path("/sys/fs/cgroup") / "memory.max").read_text()))
    except (AttributeError, ValueError, OSError):
        pass
    return min(limits, default=None)


def _group_memory(root: str = "/sys/fs/cgroup") -> int | None:
    """What a container may still take; pages of files that it holds are given back on demand."""
    folder = pathlib.Path(root)
    try:
        limit = (folder / "memory.max").read_text().strip()
        used = int((folder / "memory.current").read_text())
        stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        return None if limit == "max" else max(int(limit) - used + int(stat.get("inactive_file", 0)), 0)
    except (OSError, ValueError):
        return None
