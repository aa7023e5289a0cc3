"""FedJAX's SQLite files: one row per client, https://github.com/google/fedjax.

The table is `federated_data(client_id, data, num_examples)`; `data` is compressed by zlib and encoded by msgpack.
"""

import pathlib
import sqlite3
import zlib

from fedwin.data.formats import clients, files, values
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
    # FedJAX takes seconds to import; reading sizes does not need it.
    from fedjax.core.serialization import msgpack_deserialize

    if chosen is None:
        rows = query(path, "SELECT client_id, data FROM federated_data ORDER BY rowid")
    else:
        rows = query_clients(path, chosen)
    for client, blob in rows:
        try:
            features = msgpack_deserialize(zlib.decompress(blob))
        except Exception as error:  # zlib, msgpack and array errors alike mean a damaged record
            raise UserError(
                f"{path}, client '{clients.text(client)}': its record is damaged ({error}); fetch the file again."
            ) from error
        with values.naming(f"{path}, client '{clients.text(client)}'"):
            features = convert(features)
        yield client, features


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
