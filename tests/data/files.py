"""Writers of small files in the formats of federated data sets."""

import gzip
import json
import lzma
import sqlite3

import fedjax
import numpy as np

from tests.data.wire import example


def write_tff_sqlite(path, splits: dict, compress: bool = False, scattered: bool = False) -> None:
    """splits: name -> client -> list of feature dicts; `scattered` mixes the clients' rows."""
    plain = path.with_suffix(".plain") if compress else path
    connection = sqlite3.connect(plain)
    connection.execute("CREATE TABLE examples (split_name TEXT, client_id TEXT, serialized_example_proto BLOB)")
    connection.execute("CREATE TABLE client_metadata (client_id TEXT, split_name TEXT, num_examples INTEGER)")
    for split, held in splits.items():
        rows = [(k, split, client, example(f)) for client, listed in held.items() for k, f in enumerate(listed)]
        rows = sorted(rows, key=lambda row: row[0]) if scattered else rows
        connection.executemany("INSERT INTO examples VALUES (?, ?, ?)", [row[1:] for row in rows])
        sizes = [(client, split, len(listed)) for client, listed in held.items()]
        connection.executemany("INSERT INTO client_metadata VALUES (?, ?, ?)", sizes)
    connection.commit()
    connection.close()
    if compress:
        path.write_bytes(lzma.compress(plain.read_bytes(), format=lzma.FORMAT_ALONE))
        plain.unlink()


def write_fedjax_sqlite(path, held: dict) -> None:
    """held: client id -> feature arrays."""
    with fedjax.SQLiteFederatedDataBuilder(str(path)) as builder:
        builder.add_many(held.items())


def objects(values) -> np.ndarray:
    """An array of bytes objects, as FedJAX stores texts."""
    result = np.empty(len(values), object)
    result[:] = values
    return result


def write_leaf(folder, held: dict, files: int = 1, compress: bool = True) -> None:
    """held: user -> (x, y), spread over several files as LEAF does."""
    folder.mkdir(parents=True, exist_ok=True)
    users = list(held)
    for part in range(files):
        own = users[part::files]
        content = {
            "users": own,
            "num_samples": [len(held[user][1]) for user in own],
            "user_data": {user: {"x": held[user][0], "y": held[user][1]} for user in own},
        }
        blob = json.dumps(content).encode()
        name = f"all_data_{part}_niid_0_keep_0.json"
        (folder / (name + ".gz" if compress else name)).write_bytes(gzip.compress(blob) if compress else blob)
