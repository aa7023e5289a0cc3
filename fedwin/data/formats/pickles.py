"""Unpickling that can build nothing but numbers, texts, containers and NumPy arrays."""

import io
import pickle
from typing import Any

from fedwin.data.formats import files
from fedwin.errors import UserError

# What NumPy's own pickles name, in its old and its new layout; `_codecs.encode` restores bytes in Python 2 pickles.
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


class ArrayUnpickler(pickle.Unpickler):
    """An unpickler for which every other global is an error, so that a file cannot run code."""

    def find_class(self, module, name):
        if (module, name) not in ALLOWED:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which no array needs")
        return super().find_class(module, name)


def loads(blob: bytes, where) -> Any:
    """Returns the object in a pickle of plain containers and arrays; texts of Python 2 come as bytes.

    Raises:
      UserError: truncated, or it would build anything else.
    """
    try:
        return ArrayUnpickler(io.BytesIO(blob), encoding="bytes").load()
    except Exception as error:  # a damaged pickle can raise nearly anything
        raise UserError(f"{where}: not a pickle of arrays ({files.one_line(error)}); fetch it again.") from error
