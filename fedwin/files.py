"""Crash-safe file writing, checksums of finished files, JSON with non-finite numbers, and locks of directories.

A failed write raises a StorageError that names the file, and leaves the previous contents intact.
"""

import contextlib
import errno
import fcntl
import grp
import hashlib
import json
import math
import os
import pathlib
import pwd
import shlex
import socket
import stat
import tempfile
import time
import warnings
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

from fedwin.errors import StorageError, UserError

# Errors after which a write can succeed once there is room or the disk is repaired.
RECOVERABLE_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
# Errors of places that the user may not write to.
_FORBIDDEN_ERRNOS = (errno.EACCES, errno.EPERM, errno.EROFS)
# The system's messages, which tensorstore's errors quote.
_REASONS = tuple(map(os.strerror, (*RECOVERABLE_ERRNOS, errno.EROFS, errno.EACCES)))
LOCK_NAME = ".lock"
# Errors that mean that another process holds a lock; others mean that the file system does not support locks.
_HELD_ERRNOS = (errno.EACCES, errno.EAGAIN, errno.EDEADLK)
# Attempts to take a lock, 20 ms apart: the holder may be checking the lock, or ending.
_LOCK_ATTEMPTS = 5
_OWN_CACHE = "set FEDWIN_CACHE_DIR to a folder of your own"
# The file of checksums, in the format of coreutils: `sha256sum -c SHA256SUMS` checks them.
SUMS = "SHA256SUMS"


class InUse(UserError):
    """Another process holds the lock of a directory; processes that share work try again later."""


@contextlib.contextmanager
def writing(path: str | os.PathLike) -> Iterator[None]:
    """Converts an OSError in the body to a StorageError that names `path`, the file that is written."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        reason = error.strerror or type(error).__name__
        room = "make room, then " if error.errno in RECOVERABLE_ERRNOS or reason in _REASONS else ""
        remedy = f"{room}run the same command again (a run resumes from its last checkpoint)"
        if error.errno in _FORBIDDEN_ERRNOS:
            remedy = "choose a place that you can write to"
        raise StorageError(f"{path} can't be written ({reason}); {remedy}.") from error


def failure_reason(error: BaseException) -> str:
    """Returns why a write failed: the system's message if the error quotes one, else type and text of the error."""
    text = str(error)
    quoted = (reason for reason in _REASONS if reason in text)
    return next(quoted, f"{type(error).__name__}: {text[:200]}".replace("\n", " "))


class AppendFile:
    """A file that the first write opens for appending, and creates if it is missing; so does one after `close`.

    A write that fails closes the file, because a file object with a non-empty buffer would try to write again when it
    is garbage-collected. The methods raise StorageError if the file can't be opened or written.
    """

    def __init__(self, path: str | os.PathLike):
        self.path = pathlib.Path(path)
        self._file: BinaryIO | None = None

    def _opened(self) -> BinaryIO:
        return open(self.path, "ab")

    def write(self, data: bytes) -> None:
        """Appends bytes, which readers see at once; `flush` writes them to disk."""
        with self._closed_on_failure():
            self._file = self._file or self._opened()
            self._file.write(data)
            self._file.flush()

    def flush(self) -> None:
        """Writes what was appended to disk, and closes the file."""
        if self._file is not None:
            with self._closed_on_failure():
                os.fsync(self._file.fileno())
            self.close()

    def close(self) -> None:
        """Closes the file."""
        file, self._file = self._file, None
        if file is not None:
            with writing(self.path):
                file.close()  # closes the descriptor even if the buffer cannot be written

    @contextlib.contextmanager
    def _closed_on_failure(self) -> Iterator[None]:
        try:
            with writing(self.path):
                yield
        except StorageError:
            with contextlib.suppress(OSError):
                if self._file is not None:
                    self._file.close()
            raise


def read_bytes(path: str | os.PathLike) -> bytes:
    """Returns a regular file's contents; OSError for a pipe or device, too, which could be read forever."""
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):  # opening a directory fails with its own message
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return pathlib.Path(path).read_bytes()


def unsafe(path: str | os.PathLike) -> str | None:
    """Returns why others could change a file or directory, with the remedy, as a clause; None if they can't.

    As ssh's StrictModes: it and its parents, up to the home directory, belong to the user or to root, and only they may
    write to them. A parent with the sticky bit, such as /tmp, may be writable by all.
    """
    home, user = os.path.realpath(os.path.expanduser("~")), os.geteuid()
    for place in {os.path.abspath(path), os.path.realpath(path)}:  # a link, and where it leads
        for each in (place, *map(str, pathlib.Path(place).parents)):
            with contextlib.suppress(OSError):  # what can't be examined can't be read, either
                status = os.stat(each)
                if status.st_uid not in (0, user):
                    return f"{each} belongs to another user (uid {status.st_uid}); {_OWN_CACHE}"
                mode = status.st_mode & (0o2 if _is_own_group(status.st_gid, user) else 0o22)
                if mode and (each == place or not status.st_mode & stat.S_ISVTX):
                    return f"others may write to {each}; `chmod go-w {shlex.quote(each)}`, or {_OWN_CACHE}"
            if each == home:
                break
    return None


def _is_own_group(group: int, user: int) -> bool:
    """Whether a group has the user's name, as many systems make one for each user, and no other members."""
    with contextlib.suppress(KeyError):
        name, entry = pwd.getpwuid(user).pw_name, grp.getgrgid(group)
        return entry.gr_name == name and {*entry.gr_mem} <= {name}
    return False


def make_private(folder: pathlib.Path) -> None:
    """Makes a directory, with its parents, that only the user may write to, whatever the umask; existing ones stay."""
    for each in reversed((folder, *folder.parents)):
        if not each.exists():
            each.mkdir(0o755, exist_ok=True)


def digest_of(contents: bytes) -> str:
    """Returns a hash of the contents of a file, 32 hexadecimal digits."""
    return hashlib.blake2b(contents, digest_size=16).hexdigest()


def write_sums(directory: pathlib.Path, paths: Iterable[pathlib.Path]) -> None:
    """Writes the checksums of files in a directory, or below it, to its SHA256SUMS."""
    sums = ((hashlib.sha256(read_bytes(path)).hexdigest(), path.relative_to(directory)) for path in paths)
    replace_text(directory / SUMS, "".join(f"{digest}  {name.as_posix()}\n" for digest, name in sums))


def read_verified(directory: pathlib.Path, name: str) -> bytes:
    """Returns a file's contents; UserError if the directory's SHA256SUMS has another checksum of it."""
    contents = read_bytes(directory / name)  # first: a writer removes SHA256SUMS before it changes a file
    try:
        lines = read_bytes(directory / SUMS).decode(errors="replace").splitlines()
    except FileNotFoundError:
        return contents
    expected = {path: digest for digest, _, path in (line.partition("  ") for line in lines)}
    if expected.get(name, digest := hashlib.sha256(contents).hexdigest()) != digest:
        raise UserError(
            f"{directory / name} has been altered (its checksum in {SUMS} differs); restore it, or run again in "
            f"another --out_dir."
        )
    return contents


def replace_text(path: str | os.PathLike, text: str) -> None:
    """Writes a text file atomically, like `replace_bytes`."""
    replace_bytes(path, text.encode())


def replace_bytes(path: str | os.PathLike, contents: bytes) -> None:
    """Writes a file atomically, by renaming a temporary one; StorageError if it can't, and the old contents remain."""
    path = pathlib.Path(path)
    with writing(path):
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(contents)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(temporary, 0o644)
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise


def parse_json(text: str | bytes) -> Any:
    """Returns the value of a JSON text; raises ValueError for an invalid one, as for one that is nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def write_json(path: str | os.PathLike, value: Any) -> None:
    """Writes a value that `json_value` accepts to a JSON file, atomically; raises StorageError like `replace_bytes`."""
    replace_text(path, json.dumps(json_value(value), indent=2) + "\n")


def json_value(value: Any) -> Any:
    """Returns a value as JSON data; NaN and infinities become the strings 'nan', 'inf' and '-inf'.

    >>> json_value({"loss": float("nan"), "rounds": (1, 2)})
    {'loss': 'nan', 'rounds': [1, 2]}
    """
    if isinstance(value, dict):
        return {str(k): json_value(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_value(v) for v in value]
    if hasattr(value, "item") and getattr(value, "ndim", 0) == 0:
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    return value


@contextlib.contextmanager
def locked(directory: str | os.PathLike) -> Iterator[None]:
    """Holds the exclusive lock of an existing directory; InUse names the host and the process id of another holder.

    Writers take the lock, readers do not. The system frees it when the process ends, even by SIGKILL; its file stays.
    """
    path = pathlib.Path(directory) / LOCK_NAME
    handle = _open_locked(path)
    try:
        with writing(path):
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        yield
    finally:
        os.close(handle)


def check_unlocked(directory: str | os.PathLike) -> None:
    """Raises InUse if another process holds the lock of a directory, which need not exist; before data are loaded."""
    path = pathlib.Path(directory) / LOCK_NAME
    if os.path.isfile(path) and os.access(path, os.W_OK):
        os.close(_open_locked(path))


def is_locked(directory: str | os.PathLike) -> bool:
    """Returns whether another process holds the lock of a directory, which need not exist."""
    try:
        check_unlocked(directory)
    except InUse:
        return True
    return False


def _open_locked(path: pathlib.Path) -> int:
    """Opens and locks a lock file and returns its descriptor; raises InUse if another process holds it."""
    for attempt in range(_LOCK_ATTEMPTS):
        with writing(path):
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            # On NFS, Linux turns this into a lock of the entire file on the server, which other hosts see.
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(handle).st_nlink:  # its holder may have unlinked it in between
                return handle
        except OSError as error:
            if error.errno not in _HELD_ERRNOS:
                reason = f"this file system has no locks ({error.strerror})"
                warnings.warn(f"{reason}; make sure that no other process uses it", stacklevel=2)
                return handle
        holder = os.read(handle, 200).decode(errors="replace").strip() or "another process"
        os.close(handle)
        if attempt < _LOCK_ATTEMPTS - 1:
            time.sleep(0.02)
    raise InUse(f"{path.parent} is in use by {holder}; wait for it to end, or choose another --out_dir.")
