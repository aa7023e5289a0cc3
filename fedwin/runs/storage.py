"""Writing files so that a failure is one line and what was there stays."""

import contextlib
import errno
import hashlib
import json
import math
import os
import pathlib
import tempfile
from collections.abc import Iterator
from typing import Any

from fedwin.errors import StorageError

# A write that fails for one of these can be made up for by making room or mending the disk.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


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


class Growing:
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
