"""Files of named arrays with metadata: reads and writes .npz and .safetensors, reads PyTorch's .pt and .pth."""

import io
import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from fedwin.data.formats import files
from fedwin.errors import UserError, require
from fedwin.files import parse_json, read_bytes, replace_bytes
from fedwin.models.interchange import torch_files

WRITTEN = (".npz", ".safetensors")
# Key of the metadata in a file: an entry of .npz files, and the field of the header of .safetensors files that lists
# texts; that field contains one text, `fedwin`.
METADATA = "__metadata__"
KEY = "fedwin"


class ArrayFile(NamedTuple):
    """The contents of a file.

    Attributes:
      metadata: JSON data that fedwin wrote; {} for a file of another program.
    """

    arrays: dict[str, np.ndarray]
    metadata: dict[str, Any]


def check_target(path: str | os.PathLike, overwrite: bool = False) -> pathlib.Path:
    """Returns the path of a .npz or .safetensors file that can be written.

    Raises:
      UserError: another extension, a file that exists, no such folder, or the package safetensors is missing.
    """
    path = pathlib.Path(path)
    if path.suffix not in WRITTEN:
        raise UserError(f"{path}: the name must end in {' or '.join(WRITTEN)}.")
    if path.is_dir() or (os.path.lexists(path) and not overwrite):
        raise UserError(f"{path} exists; choose another name, or overwrite it with --overwrite (overwrite=True).")
    if not path.absolute().parent.is_dir():
        raise UserError(f"{path}: there is no folder {path.parent}; create it, or choose another name.")
    if path.suffix == ".safetensors":
        _safetensors()
    return path


def write(
    path: str | os.PathLike, arrays: Mapping[str, Any], metadata: Mapping[str, Any], overwrite: bool = False
) -> None:
    """Writes a .npz or .safetensors file atomically.

    Raises:
      UserError: as for `check_target`, or a .npz file for a type that NumPy's files have no name for, such as bfloat16.
      StorageError: the file can't be written.
    """
    path = check_target(path, overwrite)
    values = {name: np.ascontiguousarray(value).reshape(np.shape(value)) for name, value in arrays.items()}
    text = json.dumps(metadata)
    if path.suffix == ".npz":
        for name, value in values.items():
            if value.dtype.kind == "V":
                raise UserError(f"{path}: .npz files can't hold '{name}', which is {value.dtype}; write .safetensors.")
        stream = io.BytesIO()  # equal arrays give equal bytes
        np.savez(stream, **values, **{METADATA: np.array(text)})  # type: ignore[arg-type]
        content = stream.getvalue()
    else:
        content = _safetensors().numpy.save(values, {KEY: text})
    replace_bytes(path, content)


def read(path: str | os.PathLike) -> ArrayFile:
    """Reads a file, .npz, .safetensors, .pt or .pth; nothing in it is executed.

    Raises:
      UserError: the file is missing, damaged or of another kind, contains anything other than arrays of numbers, or the
        package safetensors is missing.
    """
    path = pathlib.Path(path)
    reader = {".npz": _read_npz, ".safetensors": _read_safetensors}.get(path.suffix, torch_files.read)
    try:
        content = read_bytes(path)
    except OSError as error:
        raise UserError(f"{path} can't be read ({error.strerror or error}); check the path.") from error
    arrays, text = reader(content, path)
    for name, value in arrays.items():
        if value.dtype.kind not in "fiub" and value.dtype.name != "bfloat16":
            raise UserError(f"{path}: '{name}' is {value.dtype}, not an array of numbers.")
    with files.reading(path, "its metadata is damaged", "export the model again"):
        metadata = parse_json(text) if text else {}
        if not isinstance(metadata, dict):
            raise ValueError("not an object")
    return ArrayFile(arrays, metadata)


def _read_npz(content: bytes, path: pathlib.Path) -> tuple[dict[str, np.ndarray], str]:
    with files.reading(path, "not a readable .npz file of arrays"):
        arrays = files.read_npz(io.BytesIO(content))
    return arrays, str(arrays.pop(METADATA, np.array("")))


def _read_safetensors(content: bytes, path: pathlib.Path) -> tuple[dict[str, np.ndarray], str]:
    package = _safetensors()
    with files.reading(path, "not a readable .safetensors file"), package.safe_open(path, framework="np") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, (file.metadata() or {}).get(KEY, "")


def _safetensors():
    """Imports the package safetensors; raises UserError if it is not installed."""
    require("files *.safetensors (or use .npz)", "safetensors", "safetensors")
    import safetensors.numpy

    return safetensors
