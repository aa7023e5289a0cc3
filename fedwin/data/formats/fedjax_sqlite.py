"""FedJAX's SQLite files, https://github.com/google/fedjax: one row per client.

The table is `federated_data(client_id, data, num_examples)`; `data` is zlib over msgpack.
"""

import pathlib
import sqlite3
import zlib

from fedwin.data.formats import clients, files, values
from fedwin.errors import UserError

# What sqlite3 raises of damaged files; its own error lines may not even be text.
DAMAGE = (sqlite3.Error, UnicodeDecodeError)


def connect(path) -> sqlite3.Connection:
    """Opens a SQLite file for reading only."""
    if not pathlib.Path(path).is_file():
        raise UserError(f"{path}: no such file; check --data_dir.")
    return sqlite3.connect(f"{pathlib.Path(path).absolute().as_uri()}?mode=ro", uri=True)


def sizes(path) -> dict[bytes, int]:
    """Returns client id -> number of examples, in the file's order, without reading the examples."""
    return validated_sizes(path, query(path, "SELECT client_id, num_examples FROM federated_data ORDER BY rowid"))


def validated_sizes(path, rows) -> dict:
    """Returns client -> number of examples of (client, number) rows; SQLite keeps anything in any column."""
    result = {}
    for client, number in rows:
        if not (isinstance(number, int) and number > 0):
            raise UserError(f"{path}, client '{clients.text(client)}': num_examples is {number!r}, not a number > 0.")
        result[client] = number
    return result


def query(path, sql: str, values=()):
    """Yields rows; raises UserError where the file is not such a database."""
    connection = connect(path)
    try:
        yield from connection.execute(sql, values)
    except DAMAGE as error:
        raise UserError(
            f"{path}: not a readable federated SQLite file ({files.one_line(error)}); fetch it again."
        ) from error
    finally:
        connection.close()


def read_sqlite(path, chosen=None, convert=dict):
    """Yields (client id, features) of all clients in the file's order, or of the `chosen` ids in theirs.

    Args:
      path: the file.
      chosen: client ids; None: all.
      convert: maps a client's arrays to features; what it raises is reported with the file and the client.
    """
    # The deserialiser imports jax, which reading sizes alone must not wait for.
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


def query_clients(path, chosen):
    """Yields the rows of the clients named."""
    connection = connect(path)
    try:
        for client in chosen:
            sql = "SELECT client_id, data FROM federated_data WHERE client_id = ?"
            row = connection.execute(sql, (client,)).fetchone()
            if row is None:
                raise UserError(f"{path}: there is no client '{clients.text(client)}'.")
            yield row
    except DAMAGE as error:
        raise UserError(
            f"{path}: not a readable federated SQLite file ({files.one_line(error)}); fetch it again."
        ) from error
    finally:
        connection.close()
