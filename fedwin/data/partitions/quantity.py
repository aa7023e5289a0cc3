"""Quantity-based label skew: every client holds the same number of classes."""

import warnings

import numpy as np

from fedwin.data.dataset import PARTITIONS, Dataset, Partition
from fedwin.data.partitions.pack import assign_examples, check_counts, labels_of, with_classes
from fedwin.data.rng import generator
from fedwin.errors import UserError
from fedwin.registry.ranges import PositiveInt


@PARTITIONS.register("quantity", paper="li2022niid")
def quantity(
    dataset: Dataset, num_clients: int, seed: int, *, classes: PositiveInt, bins: PositiveInt | None = None
) -> Partition:
    """Assigns s classes to each client, k mod C and s - 1 random ones; splits a class evenly among its holders.

    Client sizes differ. With fewer clients than classes, examples of classes without a holder are left out. A class
    with fewer examples than holders gives none to some of them; a warning reports how many clients miss a class.

    Args:
      classes: number of classes per client s, <= C.

    Source: the partition #C = s of NIID-Bench, Li et al. 2022, https://arxiv.org/abs/2102.02079.

    Example:
      >>> from fedwin import data, testing
      >>> dataset = testing.federations.dataset(12)
      >>> (data.make_partition(dataset, "quantity:classes=2", 3, seed=0).report["histogram"] > 0).sum(1).tolist()
      [2, 2, 2]
    """
    dataset = with_classes(dataset, "quantity", bins)
    labels = labels_of(dataset, "quantity")
    num_classes = dataset.num_classes
    check_counts("quantity", len(labels), num_clients)
    if classes > num_classes:
        raise UserError(f"partition 'quantity': classes={classes}, but '{dataset.name}' has {num_classes}.")
    rng = generator(seed, "quantity")
    holds = np.zeros((num_clients, num_classes), bool)
    for k in range(num_clients):
        first = k % num_classes
        others = np.delete(np.arange(num_classes), first)
        holds[k, first] = True
        holds[k, rng.choice(others, classes - 1, replace=False)] = True
    by_class = [np.flatnonzero(labels == c) for c in range(num_classes)]
    each, more = np.divmod([len(rows) for rows in by_class], np.maximum(holds.sum(0), 1))
    # The first holders of a class get one more each.
    counts = np.where(holds, each + (np.cumsum(holds, 0) <= more), 0).T
    lists = assign_examples(by_class, counts, rng)
    fewer = sum(0 < len(np.unique(labels[rows])) < classes for rows in lists)
    warning = f"classes have fewer examples than holders; clients with fewer than {classes} classes: {fewer}"
    if fewer:
        warnings.warn(f"partition 'quantity': {warning}.", stacklevel=2)
    return Partition.from_lists(lists, report={"warning": warning} if fewer else {})
