"""Quantity-based label skew: every client holds the same number of classes.

Li et al., Federated Learning on Non-IID Data Silos: An Experimental Study (NIID-Bench), 2022,
https://arxiv.org/abs/2102.02079.
"""

import numpy as np

from fedwin.data.dataset import PARTITIONS, Dataset, Partition
from fedwin.data.partitions.pack import check_counts, labels_of, pack
from fedwin.data.rng import generator
from fedwin.errors import UserError


@PARTITIONS.register("quantity")
def quantity(dataset: Dataset, num_clients: int, seed: int, *, classes: int) -> Partition:
    """Assigns s classes to each client, k mod C and s - 1 random ones; splits a class evenly among its holders.

    Client sizes differ. With fewer clients than classes, examples of classes without a holder are left out.

    Args:
      dataset: the data set.
      num_clients: number of clients K.
      seed: the partition seed, >= 0.
      classes: number of classes per client s, 1..C.

    Returns:
      The Partition.

    Raises:
      UserError: s is not in 1..C, N < K, or examples without a single label.

    Source: the partition #C = s of https://arxiv.org/abs/2102.02079.

    Example:
      >>> import numpy as np
      >>> from fedwin import data
      >>> dataset = data.from_arrays(np.zeros([12, 2]), np.arange(12) % 3, np.zeros([3, 2]), np.arange(3))
      >>> (data.make_partition(dataset, "quantity:classes=2", 3, seed=0).report["histogram"] > 0).sum(1).tolist()
      [2, 2, 2]
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
    lists: list[list] = [[np.zeros(0, np.int64)] for _ in range(num_clients)]
    for c in range(num_classes):
        holders = np.flatnonzero(holds[:, c])
        rows = rng.permutation(np.flatnonzero(labels == c))
        if len(holders):
            for holder, part in zip(holders, np.array_split(rows, len(holders))):
                lists[holder].append(part)
    return pack(dataset, [rng.permutation(np.concatenate(parts)) for parts in lists], "quantity")
