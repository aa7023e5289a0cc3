"""Reads the tensors of state dicts that `torch.save` has written, without torch and without running code.

The pickle of such a file names a handful of functions. Only these are known here, each with a replacement that builds
an array from the bytes of a storage; a file that names anything else is refused.
"""

import collections
import functools
import io
import math
import pathlib
import pickle
import zipfile
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from fedwin.data.formats import files
from fedwin.errors import UserError

CONVERSION = (
    'import torch; from safetensors.torch import save_file; save_file(torch.load("{name}", weights_only=True), '
    '"{stem}.safetensors")'
)
DTYPES = {
    "FloatStorage": np.dtype(np.float32),
    "DoubleStorage": np.dtype(np.float64),
    "HalfStorage": np.dtype(np.float16),
    "BFloat16Storage": np.dtype(ml_dtypes.bfloat16),
    "LongStorage": np.dtype(np.int64),
    "IntStorage": np.dtype(np.int32),
    "ShortStorage": np.dtype(np.int16),
    "CharStorage": np.dtype(np.int8),
    "ByteStorage": np.dtype(np.uint8),
}


def read(content: bytes, path: pathlib.Path) -> tuple[dict[str, np.ndarray], str]:
    """Reads a state dict, a dictionary of tensors: (name -> array, '').

    Raises:
      UserError: damaged, in the format before PyTorch 1.6, or anything other than a dictionary of tensors.
    """
    line = CONVERSION.format(name=path.name, stem=path.stem)
    remedy = f"convert it where torch is installed: python -c '{line}'"
    with files.reading(path, "not a state dict that is read without running code", remedy):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            state = _unpickle(archive)
    if not isinstance(state, dict) or not all(isinstance(value, np.ndarray) for value in state.values()):
        entries = f" (its entries are {', '.join(map(str, list(state)[:5]))})" if isinstance(state, dict) else ""
        raise UserError(
            f"{path} is not a dictionary of tensors{entries}; save the model's alone, torch.save(model.state_dict(), "
            f"'{path.name}')."
        )
    return {str(name): value for name, value in state.items()}, ""


def _unpickle(archive: zipfile.ZipFile) -> Any:
    """Returns what the archive of a state dict contains."""
    (pickled,) = (name for name in archive.namelist() if name.endswith("/data.pkl"))
    folder = pickled.removesuffix("data.pkl")
    if f"{folder}byteorder" in archive.namelist() and archive.read(f"{folder}byteorder").strip() != b"little":
        raise pickle.UnpicklingError("its numbers are not little-endian")
    storage = functools.cache(lambda key: archive.read(f"{folder}data/{key}"))
    return _StateDictUnpickler(storage, io.BytesIO(archive.read(pickled)), "bytes").load()


class _StateDictUnpickler(pickle.Unpickler):
    """An unpickler that knows the names in state dicts; a class such as torch.FloatStorage is its name."""

    def __init__(self, storage: Callable[[str], bytes], file, encoding: str):
        super().__init__(file, encoding=encoding)
        self.storage = storage

    def find_class(self, module, name):
        if module in ("torch", "torch.storage") and name in DTYPES:
            return name
        known = {
            ("collections", "OrderedDict"): collections.OrderedDict,
            ("torch._utils", "_rebuild_tensor_v2"): _tensor,
            ("torch._utils", "_rebuild_parameter"): lambda data, *_: data,
        }
        if (module, name) not in known:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which no state dict needs")
        return known[module, name]

    def persistent_load(self, pid):
        kind, storage_type, key, _, _ = pid
        if kind != "storage" or storage_type not in DTYPES:
            raise pickle.UnpicklingError("it refers to something other than the storage of a tensor")
        return np.frombuffer(self.storage(key), DTYPES[storage_type])


def _tensor(storage, offset, size, stride, *_) -> np.ndarray:
    """Copies a tensor out of a storage, an array of one axis."""
    if math.prod(size) > len(storage):  # with strides of 0, NumPy would make it
        raise pickle.UnpicklingError("a tensor is larger than its storage")
    steps = [step * storage.itemsize for step in stride]
    # NumPy checks offset and strides against the buffer.
    return np.ndarray(size, storage.dtype, storage, offset * storage.itemsize, steps).copy()
