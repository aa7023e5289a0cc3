"""Concatenates a stream of clients into flat arrays and a partition."""

import numpy as np

from fedwin.data.dataset import Examples, Partition, offsets
from fedwin.data.formats import values
from fedwin.errors import UserError


def flatten(stream, where, num_classes: int | None = None) -> tuple[Examples, Partition]:
    """Concatenates the examples of all clients, client after client.

    Args:
      stream: (client id as bytes or str, feature -> array with a leading example axis) pairs.
      where: file or split, for error messages.
      num_classes: if given, labels must be whole numbers in 0..num_classes - 1.

    Returns:
      (the examples, the Partition over them).

    Raises:
      UserError: no client, an empty client, an id that occurs twice, clients with different features, or a label out of
        range.

    Example:
      >>> import numpy as np
      >>> examples, partition = flatten([("ann", {"y": np.array([3, 1])}), ("bob", {"y": np.array([2])})], "votes")
      >>> examples["y"].tolist(), partition.sizes.tolist()
      ([3, 1, 2], [2, 1])
    """
    ids: list[bytes | str] = []
    sizes: list[int] = []
    columns: dict[str, list[np.ndarray]] = {}
    seen = set()
    for client, features in stream:
        name = text(client)
        if client in seen:
            raise UserError(f"{where}: client id '{name}' occurs twice.")
        seen.add(client)
        lengths = {key: len(value) for key, value in features.items()}
        if len(set(lengths.values())) != 1:
            raise UserError(f"{where}, client '{name}': features differ in length: {lengths}.")
        size = next(iter(lengths.values()))
        if not size:
            raise UserError(f"{where}, client '{name}': it has no examples; remove it from the file.")
        if columns and columns.keys() != features.keys():
            raise UserError(f"{where}, client '{name}': features {sorted(features)}, but {sorted(columns)} before.")
        if num_classes is not None and "y" in features:
            with values.naming(f"{where}, client '{name}'"):
                features = {**features, "y": values.labels(features["y"], num_classes)}
        for key, value in features.items():
            value = np.asarray(value)
            first = columns.setdefault(key, [value])[0]
            if first.shape[1:] != value.shape[1:]:
                raise UserError(
                    f"{where}, client '{name}': '{key}' has shape {value.shape[1:]}, but {first.shape[1:]} before."
                )
            if ids:
                columns[key].append(value)
        ids.append(client)
        sizes.append(size)
    if not ids:
        raise UserError(f"{where}: it contains no clients.")
    # One feature at a time, freeing its arrays, so that at most one feature is in memory twice.
    joined = {key: np.concatenate(columns.pop(key)) for key in list(columns)}
    offset = offsets(sizes)
    return joined, Partition(np.arange(offset[-1], dtype=np.int32), offset, ids=np.array(ids))


def text(client) -> str:
    """Returns a client id, bytes or str, as readable text."""
    return client.decode("utf-8", "replace") if isinstance(client, bytes) else str(client)
