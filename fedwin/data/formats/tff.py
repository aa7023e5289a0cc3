"""TensorFlow Federated's files, https://storage.googleapis.com/tff-datasets-public/, read without TensorFlow.

SQLite: one row per example in `examples(split_name, client_id, serialized_example_proto)`, sizes in `client_metadata`.
HDF5: `examples/<client id>/<feature>`. SQLite files may be compressed; HDF5 files also come in a .tar.bz2 of both
splits.
"""

import contextlib
import math
import mmap
import os

import numpy as np

from fedwin.data.formats import example_proto, fedjax_sqlite, files, limits, values
from fedwin.errors import UserError

# First bytes of a global heap of an HDF5 file: signature and version.
HEAP = b"GCOL\x01\0\0\0"


def read_sqlite(path, split: str, convert, chosen=None):
    """Yields (client id, features) of one split: all clients in order of first appearance, or chosen ones.

    Args:
      path: the file.
      split: name of the split.
      convert: function from a parsed example to small arrays, so that no decoded original stays in memory.
      chosen: client ids; None stands for all.

    Raises:
      UserError: damaged file or record, no such split, or a chosen client without examples.
    """
    # One list per feature: a dict for each of a hundred million examples would be larger than the examples.
    by_client: dict[str, dict[str, list]] = {client: {} for client in chosen or ()}
    sql = "SELECT client_id, serialized_example_proto FROM examples WHERE split_name = ? ORDER BY rowid"
    for number, (client, blob) in enumerate(fedjax_sqlite.query(path, sql, (split,))):
        if chosen is not None and client not in by_client:
            continue
        with values.naming(f"{path}, split {split}, record {number} of client '{client}'"):
            example = convert(example_proto.parse(blob))
        columns = by_client.setdefault(client, {})
        for key, value in example.items():
            columns.setdefault(key, []).append(value)
    if not any(by_client.values()):
        sizes(path, split)  # raises an error with the available splits
        raise UserError(f"{path}: split '{split}' has no examples.")
    if absent := next((client for client, columns in by_client.items() if not columns), None):
        raise UserError(f"{path}, split {split}: there is no example of client '{absent}'; fetch the file again.")
    for client in list(by_client):
        columns = by_client.pop(client)
        with values.naming(f"{path}, split {split}, client '{client}'"):
            features = {key: stack(column) for key, column in columns.items()}
        yield client, features


def sizes(path, split: str) -> dict[str, int]:
    """Returns client id -> number of examples of one split of a SQLite file; raises UserError if there is none."""
    sql = "SELECT client_id, num_examples FROM client_metadata WHERE split_name = ? ORDER BY rowid"
    num_examples = fedjax_sqlite.validated_sizes(path, fedjax_sqlite.query(path, sql, (split,)))
    if not num_examples:
        splits = [name for (name,) in fedjax_sqlite.query(path, "SELECT DISTINCT split_name FROM client_metadata")]
        raise UserError(f"{path}: no split '{split}'; it has {', '.join(sorted(splits)) or 'none'}.")
    return num_examples


def read_hdf5(path, convert, chosen=None):
    """Yields (client id, features) of an HDF5 file, of all clients or of chosen ones.

    Args:
      path: the file.
      convert: function from a client's arrays to features; its errors are reported with the file and the client.
      chosen: client ids; None stands for all.

    Raises:
      UserError: damaged file or record, or no such client.
    """
    with hdf5(path) as groups:
        check_heaps(path)
        for client in groups if chosen is None else chosen:
            with values.naming(f"{path}, client '{client}'"):
                features = convert({key: read_array(array, path) for key, array in groups[client].items()})
            yield client, features


def check_heaps(path) -> None:
    """Checks the sizes in the global heaps of an HDF5 file, which contain texts: libhdf5 loops forever on size 0.

    Layout: III.E of https://support.hdfgroup.org/documentation/hdf5/latest/_f_m_t3.html.

    Args:
      path: the file.

    Raises:
      UserError: an object without size, or larger than its heap.
    """
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        start = content.find(HEAP)
        while start >= 0:
            size = int.from_bytes(content[start + 8 : start + 16], "little")
            position, end = start + 16, min(start + size, len(content))
            while position + 16 <= end:
                number = int.from_bytes(content[position : position + 2], "little")
                length = int.from_bytes(content[position + 8 : position + 16], "little")
                step = length if number == 0 else 16 + -(-length // 8) * 8
                if not 0 < step <= size:
                    raise UserError(f"{path}: not a readable HDF5 file (damaged heap at {start}); fetch it again.")
                position += step
            start = content.find(HEAP, start + len(HEAP))


def read_array(array, path) -> np.ndarray:
    """Reads an HDF5 array; arrays without stored content, which may have any size, are rejected.

    Args:
      array: h5py.Dataset.
      path: the file, for error messages.
    """
    limits.check(math.prod(array.shape) * array.dtype.itemsize, os.path.getsize(path), path)
    return array[()]


def sizes_hdf5(path, feature: str) -> dict[str, int]:
    """Returns client id -> length of one feature, without reading it."""
    with hdf5(path) as groups, values.naming(path):
        return {client: len(group[feature]) for client, group in groups.items()}


@contextlib.contextmanager
def hdf5(path):
    """Context manager that opens the clients of an HDF5 file: client id -> group of arrays."""
    try:
        import h5py
    except ImportError as error:
        raise UserError(f"{path}: HDF5 files need the package h5py; install it with `pip install h5py`.") from error
    try:
        source = h5py.File(path, "r")
    except OSError as error:
        raise UserError(f"{path}: not a readable HDF5 file ({error}); fetch it again.") from error
    with source:
        if not isinstance(source.get("examples"), h5py.Group):
            raise UserError(f"{path}: there is no group 'examples'; it is not a file of TensorFlow Federated.")
        try:
            yield source["examples"]
        except (OSError, RuntimeError) as error:  # raised by h5py for damage inside the file
            raise UserError(f"{path}: not a readable HDF5 file ({files.one_line(error)}); fetch it again.") from error


def stack(values: list) -> np.ndarray:
    """Stacks arrays; byte strings become an object array, because NumPy's bytes type drops trailing zeros."""
    if isinstance(values[0], bytes):
        result = np.empty(len(values), object)
        result[:] = values
        return result
    return np.stack(values)
