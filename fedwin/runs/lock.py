"""One process at a time in a run's directory."""

import contextlib
import os
import pathlib
import socket
from collections.abc import Iterator

from fedwin.errors import UserError
from fedwin.runs.storage import writing

try:
    import fcntl
except ImportError:  # Windows has byte-range locks of its own
    fcntl = None  # type: ignore[assignment]
    import msvcrt

NAME = ".lock"


def _take(handle: int) -> bool:
    """Locks an open file without waiting; the system frees it when its process ends, however that ends."""
    try:
        if fcntl is not None:
            # On NFS, Linux makes a lock of the whole file on the server of this, so other hosts see it.
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        else:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
    except OSError:
        return False
    return True


@contextlib.contextmanager
def locked(directory) -> Iterator[None]:
    """Holds the lock of a directory, which must exist; whoever shares work between processes takes this one.

    Readers take none. A process that dies, by SIGKILL too, holds nothing.

    Args:
      directory: what is locked.

    Raises:
      UserError: another process holds it; names its host and process id.
    """
    path = pathlib.Path(directory) / NAME
    with writing(path):
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if not _take(handle):
            holder = os.read(handle, 200).decode(errors="replace").strip() or "another process"
            raise UserError(f"{directory} is in use by {holder}; wait for it to end, or choose another --out_dir.")
        with writing(path):
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        yield
    finally:
        os.close(handle)
