"""Unpickles numbers, texts, containers and NumPy arrays, and refuses everything else."""

import io
import pickle
from typing import Any

from fedwin.data.formats import files
from fedwin.errors import UserError

# Globals in NumPy's pickles, in its old and new layout; `_codecs.encode` restores bytes in Python 2 pickles.
ALLOWED = {
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy.core.multiarray", "scalar"),
    ("numpy._core.multiarray", "scalar"),
    ("numpy.core.numeric", "_frombuffer"),
    ("numpy._core.numeric", "_frombuffer"),
    ("_codecs", "encode"),
}


def loads(blob: bytes, where) -> Any:
    """Unpickles plain containers and arrays; texts of Python 2 become bytes.

    Args:
      blob: the pickle.
      where: the file, for error messages.

    Raises:
      UserError: truncated, or it contains other objects.
    """
    try:
        return ArrayUnpickler(io.BytesIO(blob), encoding="bytes").load()
    except Exception as error:  # a damaged pickle can raise nearly anything
        raise UserError(f"{where}: not a pickle of arrays ({files.one_line(error)}); fetch it again.") from error


class ArrayUnpickler(pickle.Unpickler):
    """An unpickler that refuses other globals, so that a file can't run code."""

    def find_class(self, module, name):
        if (module, name) not in ALLOWED:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which no array needs")
        return super().find_class(module, name)
