"""TensorFlow Federated's files, https://storage.googleapis.com/tff-datasets-public/, read without TensorFlow.

SQLite: one row per example in `examples(split_name, client_id, serialized_example_proto)`, sizes in `client_metadata`.
HDF5: `examples/<client id>/<feature>`. Either may be compressed as a whole.
"""

import contextlib
import pathlib
import shutil
import tempfile

import numpy as np

from fedwin.data import example_proto, fedjax_data, files
from fedwin.errors import UserError


@contextlib.contextmanager
def unpacked(path: pathlib.Path):
    """Gives the path of the plain file: the file itself, or a temporary decoded copy that is removed afterwards."""
    with open(path, "rb") as stream:
        function = files.opener(stream.read(6), path.name)
    if function is None:
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="fedwin-") as folder:
        plain = pathlib.Path(folder) / files.plain(path.name)
        try:
            with function(path) as source, open(plain, "wb") as target:
                shutil.copyfileobj(source, target, 1 << 22)
        except Exception as error:  # each decompressor raises its own kinds
            raise UserError(f"{path}: the compressed file is truncated or damaged ({error}); fetch it again.")
        yield plain


def sizes(path, split: str) -> dict[str, int]:
    """Returns client id -> number of examples of one split of a SQLite file."""
    sql = "SELECT client_id, num_examples FROM client_metadata WHERE split_name = ? ORDER BY rowid"
    found = dict(fedjax_data.query(path, sql, (split,)))
    if not found:
        known = [name for (name,) in fedjax_data.query(path, "SELECT DISTINCT split_name FROM client_metadata")]
        raise UserError(f"{path}: no split '{split}'; it has {', '.join(sorted(known)) or 'none'}.")
    return found


def read_sqlite(path, split: str, convert, chosen=None):
    """Yields (client id, features) of one split, clients in order of first appearance.

    Args:
      convert: parsed example -> dict of small arrays, so that no decoded original is kept.
      chosen: client ids to keep; all by default.
    """
    held: dict[str, list] = {}
    wanted = None if chosen is None else set(chosen)
    sql = "SELECT client_id, serialized_example_proto FROM examples WHERE split_name = ? ORDER BY rowid"
    for number, (client, blob) in enumerate(fedjax_data.query(path, sql, (split,))):
        if wanted is not None and client not in wanted:
            continue
        try:
            example = convert(example_proto.parse(blob))
        except (ValueError, KeyError) as error:
            raise UserError(
                f"{path}, split {split}, record {number} of client '{client}': {error}; fetch the file again."
            )
        held.setdefault(client, []).append(example)
    if not held:
        sizes(path, split)  # says which splits there are
        raise UserError(f"{path}: split '{split}' has no examples.")
    for client in list(held):
        rows = held.pop(client)
        yield client, {key: stack([row[key] for row in rows]) for key in rows[0]}


def stack(values: list) -> np.ndarray:
    """Stacks arrays; byte strings become an object array, because NumPy's own type drops trailing zeros."""
    if isinstance(values[0], bytes):
        result = np.empty(len(values), object)
        result[:] = values
        return result
    return np.stack(values)


def read_hdf5(path, convert):
    """Yields (client id, features) of an HDF5 file; `convert` maps a client's arrays to features."""
    try:
        import h5py
    except ImportError:
        raise UserError(f"{path}: HDF5 files need the package h5py; install it with `pip install h5py`.")
    try:
        source = h5py.File(path, "r")
    except OSError as error:
        raise UserError(f"{path}: not a readable HDF5 file ({error}); fetch it again.")
    with source:
        if "examples" not in source:
            raise UserError(f"{path}: there is no group 'examples'; it is not a file of TensorFlow Federated.")
        for client, group in source["examples"].items():
            try:
                yield client, convert({key: group[key][()] for key in group})
            except (KeyError, ValueError, OSError) as error:
                raise UserError(f"{path}, client '{client}': {error}; fetch the file again.")
