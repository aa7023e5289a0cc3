"""SQLite files of federated data sets, plain or compressed.

FedJAX, https://github.com/google/fedjax: one row per client in `federated_data(client_id, data, num_examples)`; `data`
is compressed by zlib and encoded by msgpack. TensorFlow Federated, https://storage.googleapis.com/tff-datasets-public/:
one row per example in `examples(split_name, client_id, serialized_example_proto)`.
"""

import pathlib
import sqlite3
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from fedwin.data.dataset import Examples
from fedwin.data.formats import clients, files
from fedwin.errors import UserError

DTYPES = {"float_list": np.float32, "int64_list": np.int64}


def read(
    path, chosen: Iterable[bytes] | None = None, convert: Callable[[dict], Examples] = dict
) -> Iterator[tuple[bytes, Examples]]:
    """Yields (client id, features) of all clients in FedJAX's file, in its order, or of chosen clients in theirs.

    Args:
      chosen: client ids; None stands for all.
      convert: function from a client's arrays to features; its errors are reported with the file and the client.

    Raises:
      UserError: damaged file or record.
    """
    # Imported on first use: FedJAX takes a second.
    from fedjax.core.sqlite_federated_data import decompress_and_deserialize

    sql = f"SELECT client_id, data FROM federated_data {'ORDER BY rowid' if chosen is None else 'WHERE client_id = ?'}"
    for client, blob in query(path, sql, [()] if chosen is None else [(client,) for client in chosen]):
        where = f"{path}, client '{clients.text(client)}'"
        with files.reading(where, "its record is damaged"):
            features = dict(decompress_and_deserialize(blob))
        with files.reading(where):
            features = convert(features)
        yield client, features


def sizes(path) -> dict[bytes, int]:
    """Returns client id -> number of examples in FedJAX's file, in its order, without reading the examples."""
    rows = dict(query(path, "SELECT client_id, num_examples FROM federated_data ORDER BY rowid"))
    for client, number in rows.items():
        if not (isinstance(number, int) and number > 0):
            raise UserError(f"{path}, client '{clients.text(client)}': num_examples is {number!r}, not a number > 0.")
    return rows


def read_tff(path, split: str, convert: Callable[[dict], Examples]) -> Iterator[tuple[str, Examples]]:
    """Yields (client id, features) of one split of TensorFlow Federated's file, in order of first appearance.

    Args:
      convert: function from a parsed example to small arrays, so that no decoded original stays in memory.

    Raises:
      UserError: damaged file or record, or no such split.
    """
    # One list per feature: a dict for each of a hundred million examples would be larger than the examples.
    by_client: dict[str, dict[str, list]] = {}
    sql = "SELECT client_id, serialized_example_proto FROM examples WHERE split_name = ? ORDER BY rowid"
    for number, (client, blob) in enumerate(query(path, sql, [(split,)])):
        with files.reading(f"{path}, split {split}, record {number} of client '{client}'"):
            for key, value in convert(parse_example(blob)).items():
                by_client.setdefault(client, {}).setdefault(key, []).append(value)
    if not by_client:
        raise UserError(f"{path}: there is no example of split '{split}'; fetch the file again.")
    for client in list(by_client):
        yield client, {key: np.stack(column) for key, column in by_client.pop(client).items()}


def parse_example(blob: bytes) -> dict[str, np.ndarray | list[bytes]]:
    """Decodes a serialized tf.train.Example: feature name -> float32 or int64 array [n], or list of bytes.

    Raises:
      ValueError: not such a message.
    """
    # Imported on first use, which takes a second: only TensorFlow Federated's files need it.
    from google.protobuf.message import DecodeError
    from tensorflow_datasets.proto.tf_example_generated_pb2 import Example

    try:
        features = Example.FromString(blob).features.feature
    except DecodeError as error:
        raise ValueError("not a tf.train.Example, or a truncated one") from error
    parsed: dict[str, np.ndarray | list[bytes]] = {}
    for name, feature in features.items():
        if kind := feature.WhichOneof("kind"):
            listed = getattr(feature, kind).value
            parsed[name] = np.array(listed, DTYPES[kind]) if kind in DTYPES else list(listed)
    return parsed


def query(path, sql: str, parameters: Iterable[tuple] = ((),)) -> Iterator[tuple]:
    """Yields the rows of a query for each of several parameters; raises UserError if it is no such database."""
    with files.reading(path, "not a readable federated SQLite file"):
        connection = connect(path)
        try:
            for each in parameters:
                yield from connection.execute(sql, each)
        finally:
            connection.close()


def connect(path) -> sqlite3.Connection:
    """Opens a SQLite file read-only, a compressed one in memory; raises UserError if there is none."""
    path = pathlib.Path(path)
    if not path.is_file():
        raise UserError(f"{path}: no such file; check --data_dir.")
    if files.plain(path.name) == path.name:
        return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
    connection = sqlite3.connect(":memory:")
    connection.deserialize(files.read(path))
    return connection
