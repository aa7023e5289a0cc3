"""Writing files so that a failure is one line and what was there stays."""

import contextlib
import json
import math
import os
import pathlib
import tempfile
from collections.abc import Iterator
from typing import Any

from fedwin.errors import StorageError


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


def write_json(path, value: Any) -> None:
    """Writes a JSON file in one step."""
    replace_text(path, json.dumps(plain(value), indent=2) + "\n")
