"""FedJAX's SQLite files: one row per client, https://github.com/google/fedjax.

The table is `federated_data(client_id, data, num_examples)`; `data` is compressed by zlib and encoded by msgpack.
"""

import math
import pathlib
import sqlite3
import zlib
from typing import Any

import msgpack
import numpy as np

from fedwin.data.formats import clients, files, limits, values
from fedwin.errors import UserError

# Raised by sqlite3 for damaged files; its messages may not even decode as text.
DAMAGE_ERRORS = (sqlite3.Error, UnicodeDecodeError)


def read_sqlite(path, chosen=None, convert=dict):
    """Yields (client id, features) of all clients in the file's order, or of chosen clients in the given order.

    Args:
      path: the file.
      chosen: client ids; None stands for all.
      convert: function from a client's arrays to features; its errors are reported with the file and the client.

    Raises:
      UserError: damaged file or record, or no such client.
    """
    if chosen is None:
        rows = query(path, "SELECT client_id, data FROM federated_data ORDER BY rowid")
    else:
        rows = query_clients(path, chosen)
    for client, blob in rows:
        try:
            features = unpack(decompress(blob, path))
            if not isinstance(features, dict):
                raise ValueError("it is not a dictionary of arrays")
        except Exception as error:  # zlib, msgpack and array errors alike mean a damaged record
            raise UserError(
                f"{path}, client '{clients.text(client)}': its record is damaged ({error}); fetch the file again."
            ) from error
        with values.naming(f"{path}, client '{clients.text(client)}'"):
            features = convert(features)
        yield client, features


def decompress(blob: bytes, where) -> bytes:
    """Decompresses a record by zlib, up to a bound; `where` is the file, for error messages."""
    decompressor = zlib.decompressobj()
    limit = limits.most_bytes(len(blob))
    content = decompressor.decompress(blob, limit + 1)
    if len(content) > limit:
        raise limits.too_large(where, limit)
    if not decompressor.eof:
        raise ValueError("it is truncated")
    return content


def unpack(blob: bytes) -> Any:
    """Decodes a record by msgpack and FedJAX's extensions of it for arrays; NumPy receives no type from the file.

    Source: https://github.com/google/fedjax/blob/main/fedjax/core/serialization.py.
    """
    return msgpack.unpackb(blob, ext_hook=_extension, raw=False)


def _extension(code: int, blob: bytes) -> Any:
    """Decodes an extension: 1 an array of numbers, 2 a complex number, 3 a number, 4 an array of texts."""
    if code == 2:
        return complex(*msgpack.unpackb(blob))
    if code == 4:
        shape, texts = msgpack.unpackb(blob, raw=True)
        if not all(isinstance(text, bytes) for text in texts) or math.prod(shape) != len(texts):
            raise ValueError(f"{len(texts)} texts are not an array of shape {shape}")
        result = np.empty(len(texts), object)
        result[:] = texts
        return result.reshape(shape)
    if code not in (1, 3):
        raise ValueError(f"extension {code} is not FedJAX's")
    shape, name, raw = msgpack.unpackb(blob, raw=True)
    array = values.from_bytes(bytes(raw), bytes(name).decode(), "=", shape)
    return array if code == 1 else array[()]


def sizes(path) -> dict[bytes, int]:
    """Returns client id -> number of examples, in the file's order, without reading the examples."""
    return validated_sizes(path, query(path, "SELECT client_id, num_examples FROM federated_data ORDER BY rowid"))


def validated_sizes(path, rows) -> dict:
    """Checks (client, number of examples) rows, as SQLite columns accept any type; returns client -> number."""
    result = {}
    for client, number in rows:
        if not (isinstance(number, int) and number > 0):
            raise UserError(f"{path}, client '{clients.text(client)}': num_examples is {number!r}, not a number > 0.")
        result[client] = number
    return result


def query(path, sql: str, values=()):
    """Yields the rows of a query; raises UserError if the file is not such a database."""
    connection = connect(path)
    try:
        yield from connection.execute(sql, values)
    except DAMAGE_ERRORS as error:
        raise UserError(
            f"{path}: not a readable federated SQLite file ({files.one_line(error)}); fetch it again."
        ) from error
    finally:
        connection.close()


def query_clients(path, chosen):
    """Yields the rows of chosen clients."""
    connection = connect(path)
    try:
        for client in chosen:
            sql = "SELECT client_id, data FROM federated_data WHERE client_id = ?"
            row = connection.execute(sql, (client,)).fetchone()
            if row is None:
                raise UserError(f"{path}: there is no client '{clients.text(client)}'.")
            yield row
    except DAMAGE_ERRORS as error:
        raise UserError(
            f"{path}: not a readable federated SQLite file ({files.one_line(error)}); fetch it again."
        ) from error
    finally:
        connection.close()


def connect(path) -> sqlite3.Connection:
    """Opens a SQLite file read-only; raises UserError if there is none."""
    if not pathlib.Path(path).is_file():
        raise UserError(f"{path}: no such file; check --data_dir.")
    return sqlite3.connect(f"{pathlib.Path(path).absolute().as_uri()}?mode=ro", uri=True)
