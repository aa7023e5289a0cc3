"""Concatenates a stream of clients into flat arrays and a partition."""

from collections.abc import Iterable

import numpy as np

from fedwin.data.dataset import Examples, Partition
from fedwin.errors import UserError


def flatten(stream: Iterable[tuple[bytes | str, Examples]], where) -> tuple[Examples, Partition]:
    """Concatenates the examples of all clients, client after client; returns them and their Partition.

    Args:
      stream: (client id as bytes or str, feature -> array with a leading example axis) pairs.

    Raises:
      UserError: no client, an empty client, an id that occurs twice, or clients with different features.
    """
    ids: dict[bytes | str, int] = {}
    columns: dict[str, list[np.ndarray]] = {}
    for client, features in stream:
        if client in ids:
            raise UserError(f"{where}: client id '{text(client)}' occurs twice.")
        of_client = f"{where}, client '{text(client)}'"
        lengths = {key: len(value) for key, value in features.items()}
        if len(set(lengths.values())) != 1:
            raise UserError(f"{of_client}: features differ in length: {lengths}.")
        ids[client] = next(iter(lengths.values()))
        if not ids[client]:
            raise UserError(f"{of_client}: it has no examples; remove it from the file.")
        if columns and columns.keys() != features.keys():
            raise UserError(f"{of_client}: features {sorted(features)}, but {sorted(columns)} before.")
        for key, value in features.items():
            column = columns.setdefault(key, [])
            column.append(np.asarray(value))
            if column[0].shape[1:] != column[-1].shape[1:]:
                raise UserError(
                    f"{of_client}: '{key}' has shape {column[-1].shape[1:]}, but {column[0].shape[1:]} before."
                )
    if not ids:
        raise UserError(f"{where}: it contains no clients.")
    # One feature at a time, freeing its arrays, so that at most one feature is in memory twice.
    joined = {key: np.concatenate(columns.pop(key)) for key in list(columns)}
    return joined, Partition.consecutive(list(ids.values()), ids=np.array(list(ids)))


def text(client: bytes | str) -> str:
    """Returns a client id as readable text."""
    return client.decode("utf-8", "replace") if isinstance(client, bytes) else str(client)
