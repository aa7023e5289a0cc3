"""Writing files so that a failure is one line and what was there stays."""

import contextlib
import errno
import hashlib
import json
import math
import os
import pathlib
import socket
import tempfile
import time
import warnings
from collections.abc import Iterator
from typing import Any

from fedwin.errors import StorageError, UserError

# A write that fails for one of these can be made up for by making room or mending the disk.
RECOVERABLE_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


# What tensorstore's errors say of the system's.
_REASONS = tuple(map(os.strerror, (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.EACCES)))


def reason_of(error: BaseException) -> str:
    """Returns why a write failed, in the system's words where an error of tensorstore's quotes them."""
    text = str(error)
    found = (reason for reason in _REASONS if reason in text)
    return next(found, f"{type(error).__name__}: {text[:200]}".replace("\n", " "))


@contextlib.contextmanager
def writing(path) -> Iterator[None]:
    """Makes a StorageError that names `path` of an OSError."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise StorageError(
            f"{path} can't be written ({reason}); make room, then the same command resumes from the last checkpoint."
        ) from error


class AppendFile:
    """A file that grows at its end; created at once.

    A write that fails closes it: a file object that still held something would try again when it is forgotten, and
    complain.

    Args:
      path: where it is.
    """

    def __init__(self, path):
        self.path = pathlib.Path(path)
        with writing(self.path):
            self._file = open(self.path, "ab")

    def write(self, data: bytes) -> None:
        """Appends bytes, which `flush` brings to the disk."""
        self._do(lambda: self._file.write(data))

    def flush(self) -> None:
        """Brings everything to the disk."""
        self._do(self._sync)

    def _sync(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Closes the file."""
        with writing(self.path):
            self._file.close()  # also where what it still held can't be written

    def _do(self, act) -> None:
        try:
            with writing(self.path):
                act()
        except StorageError:
            with contextlib.suppress(OSError):
                self._file.close()
            raise


def replace_text(path, text: str) -> None:
    """Writes a text file in one step: beside it, then renamed."""
    path = pathlib.Path(path)
    with writing(path):
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(temporary, 0o644)
            os.replace(temporary, path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise


def plain(value: Any) -> Any:
    """Makes JSON of a value; NaN and infinities become the strings 'nan', 'inf', '-inf', which every parser reads."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if hasattr(value, "item") and getattr(value, "ndim", 0) == 0:
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    return value


def sealed(said: dict[str, Any]) -> dict[str, Any]:
    """Returns JSON data with a hash of all that it says, under `seal`."""
    kept = {name: value for name, value in said.items() if name != "seal"}
    text = json.dumps(kept, sort_keys=True)
    return kept | {"seal": hashlib.blake2b(text.encode(), digest_size=16).hexdigest()}


def write_json(path, value: Any) -> None:
    """Writes a JSON file in one step."""
    replace_text(path, json.dumps(plain(value), indent=2) + "\n")


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
