"""Unpickles numbers, texts, containers and NumPy arrays, and rejects everything else: no pickle runs code."""

import io
import pickle

import numpy as np

from fedwin.data.formats import files

# The globals in NumPy's pickles; `_codecs.encode` and `bytes` restore bytes in those for Python 2.
ALLOWED = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("numpy core multiarray", "_reconstruct"): np.zeros(0).__reduce__()[0],
    ("numpy core multiarray", "scalar"): np.float64(0).__reduce__()[0],
    ("numpy core numeric", "_frombuffer"): np.zeros(0).__reduce_ex__(5)[0],
    ("_codecs", "encode"): str.encode,
    ("__builtin__", "bytes"): bytes,
}


class ArrayUnpickler(pickle.Unpickler):
    """An unpickler that knows the globals of NumPy's pickles only."""

    def find_class(self, module: str, name: str):
        for package in ("numpy.core.", "numpy._core."):  # before and since NumPy 2
            module = module.replace(package, "numpy core ")
        if (module, name) not in ALLOWED:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which no array needs")
        return ALLOWED[module, name]


def loads(blob: bytes, where):
    """Unpickles plain containers and arrays; texts of Python 2 become bytes. `where` is the file.

    Raises:
      UserError: truncated, or it contains other objects.
    """
    with files.reading(where, "not a pickle of arrays"):
        return ArrayUnpickler(io.BytesIO(blob), encoding="bytes").load()
