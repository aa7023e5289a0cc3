"""Quantity-based label skew (#C = s), Li et al. 2022 (NIID-Bench), https://arxiv.org/abs/2102.02079."""

import numpy as np

from fedwin.data.dataset import PARTITIONS, Dataset, Partition
from fedwin.data.partitions.pack import check_counts, labels_of, pack
from fedwin.data.rng import generator
from fedwin.errors import UserError


@PARTITIONS.register("quantity")
def quantity(dataset: Dataset, num_clients: int, seed: int, *, classes: int) -> Partition:
    """Client k holds class k mod C and s - 1 others; a class is split evenly among its holders, so sizes differ.

    With fewer clients than classes some classes may have no holder; their examples are left out.

    Args:
      classes: s, classes per client, 1..C.
    """
    labels = labels_of(dataset, "quantity")
    num_classes = dataset.num_classes
    check_counts("quantity", len(labels), num_clients)
    if not 1 <= classes <= num_classes:
        raise UserError(f"partition 'quantity': classes={classes}; '{dataset.name}' has 1 to {num_classes}.")
    rng = generator(seed, "quantity")
    holds = np.zeros((num_clients, num_classes), bool)
    for k in range(num_clients):
        first = k % num_classes
        others = np.delete(np.arange(num_classes), first)
        holds[k, first] = True
        holds[k, rng.choice(others, classes - 1, replace=False)] = True
    parts: list[list] = [[np.zeros(0, np.int64)] for _ in range(num_clients)]
    for c in range(num_classes):
        holders = np.flatnonzero(holds[:, c])
        rows = rng.permutation(np.flatnonzero(labels == c))
        if len(holders):
            for holder, piece in zip(holders, np.array_split(rows, len(holders))):
                parts[holder].append(piece)
    return pack(dataset, [rng.permutation(np.concatenate(pieces)) for pieces in parts], "quantity")
