"""One process at a time in a run's directory."""

import contextlib
import errno
import os
import pathlib
import socket
import time
import warnings
from collections.abc import Iterator

from fedwin.errors import UserError
from fedwin.runs.storage import writing

try:
    import fcntl
except ImportError:  # Windows has byte-range locks of its own
    fcntl = None  # type: ignore[assignment]
    import msvcrt

NAME = ".lock"
# Errors that say that somebody else holds a lock; the others say that a file system has none.
HELD = (errno.EACCES, errno.EAGAIN, errno.EDEADLK)
# How often a lock is asked for, 20 ms apart: somebody may just be looking, or ending.
TRIES = 5


class InUse(UserError):
    """Another process holds the lock; whoever shares work between processes comes back later."""


def _take(handle: int) -> bool:
    """Locks an open file without waiting; the system frees it when its process ends, however that ends."""
    try:
        if fcntl is not None:
            # On NFS, Linux makes a lock of the whole file on the server of this, so other hosts see it.
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        else:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
    except OSError as error:
        if error.errno in HELD:
            return False
        warnings.warn(
            f"this file system has no locks ({error.strerror}); see to it that no other process runs there",
            stacklevel=2,
        )
    return True


def _is_at(handle: int, path: pathlib.Path) -> bool:
    """Whether an open file is the one at a path; who held the lock until now has removed it."""
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False


def _taken(path: pathlib.Path) -> int:
    """Opens and locks the file; returns its descriptor."""
    for attempt in range(TRIES):
        with writing(path):
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            if _take(handle) and _is_at(handle, path):
                return handle
            holder = os.read(handle, 200).decode(errors="replace").strip() or "another process"
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)
        if attempt < TRIES - 1:
            time.sleep(0.02)
    raise InUse(f"{path.parent} is in use by {holder}; wait for it to end, or choose another --out_dir.")


@contextlib.contextmanager
def locked(directory) -> Iterator[None]:
    """Holds the lock of a directory, which must exist; whoever shares work between processes takes this one.

    Readers take none. A process that dies, by SIGKILL too, holds nothing.

    Args:
      directory: what is locked.

    Raises:
      InUse: another process holds it; names its host and process id.
    """
    path = pathlib.Path(directory) / NAME
    handle = _taken(path)
    try:
        with writing(path):
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        yield
    finally:
        with contextlib.suppress(OSError):  # Windows removes no open file
            path.unlink()
        os.close(handle)


def check_free(directory) -> None:
    """Raises InUse if another process holds the lock of a directory; for refusing at once, before data is read."""
    path = pathlib.Path(directory) / NAME
    if os.path.isfile(path) and os.access(path, os.W_OK):
        os.close(_taken(path))
