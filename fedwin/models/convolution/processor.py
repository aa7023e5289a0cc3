"""What the processor of this machine can do."""

import contextlib
import functools
import pathlib
import platform


@functools.cache
def instructions() -> tuple[str, ...]:
    """Returns the names of the processor's instruction sets as Linux lists them; elsewhere what Python knows of it."""
    with contextlib.suppress(OSError):
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            name, _, listed = line.partition(":")
            if name.strip().lower() in ("flags", "features"):
                return tuple(listed.split())
    return tuple(platform.processor().split())
