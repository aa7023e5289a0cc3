"""The end of every partitioner: pack the lists, check them, write the report."""

import numpy as np

from fedwin.data.dataset import MAX_CELLS, Dataset, Partition
from fedwin.errors import UserError


def labels_of(dataset: Dataset, partition: str) -> np.ndarray:
    """Returns the labels [N] of the training examples; raises UserError where an example has no single label."""
    labels = np.asarray(dataset.train["y"])
    if labels.ndim != 1:
        raise UserError(
            f"partition '{partition}' needs one label per example, and data set '{dataset.name}' has labels of shape "
            f"{labels.shape}; use its own clients (--partition=natural) or iid."
        )
    return labels


def check_counts(partition: str, num_examples: int, num_clients: int, per_client: int = 1) -> None:
    """Checks that every client can get its examples.

    Args:
      partition: its name, for error lines.
      num_examples: N.
      num_clients: K.
      per_client: examples of each client.

    Raises:
      UserError: there are no clients, or too few examples.
    """
    if num_clients is None or num_clients < 1:
        raise UserError(f"partition '{partition}' needs num_clients >= 1, got {num_clients}.")
    if per_client < 1:
        raise UserError(f"partition '{partition}': {per_client} examples per client; give at least 1.")
    if num_clients * per_client > num_examples:
        raise UserError(
            f"partition '{partition}': {num_clients} clients x {per_client} examples are more than the {num_examples} "
            f"training examples; use fewer clients."
        )


def histogram(dataset: Dataset, partition: Partition) -> np.ndarray | None:
    """Returns the int32 [K, C] counts of each class on each client; None for sequences and beyond MAX_CELLS."""
    if dataset.task != "classification" or partition.num_clients * dataset.num_classes > MAX_CELLS:
        return None
    return partition.class_counts(dataset.train["y"], dataset.num_classes)


def finish(dataset: Dataset, partition: Partition, name: str, **report) -> Partition:
    """Checks that no example is dealt twice and adds the report.

    Args:
      dataset: what was dealt.
      partition: who holds what.
      name: of the partitioner.
      **report: further entries of the report.

    Returns:
      The partition with `report`: 'partition' (the name), 'sizes' [K], 'histogram' [K, C] or None, 'left_out' (examples
      that no client has), 'fallbacks' (draws that the rule could not make), and the further entries given.

    Raises:
      UserError: an example out of range or on two clients.
    """
    n = len(dataset.train["y"])
    order = partition.order
    if order.size and (order.min() < 0 or order.max() >= n):
        raise UserError(f"partition '{name}' names example {order.max()}, but '{dataset.name}' has only {n}.")
    used = np.zeros(n, bool)
    used[order] = True
    if np.count_nonzero(used) != order.size:
        twice = int(np.bincount(order, minlength=n).argmax())
        raise UserError(f"partition '{name}' deals example {twice} to more than one client.")
    full = {
        "partition": name,
        "sizes": partition.sizes,
        "histogram": histogram(dataset, partition),
        "left_out": int(n - order.size),
        "fallbacks": 0,
    }
    return partition._replace(report={**full, **report})


def pack(dataset: Dataset, lists, name: str, **report) -> Partition:
    """Packs one list of rows per client and finishes it.

    Args:
      dataset: what was dealt.
      lists: rows of each client.
      name: of the partitioner.
      **report: further entries of the report.
    """
    return finish(dataset, Partition.from_lists(lists), name, **report)


def check_not_empty(partition: Partition) -> None:
    """Raises UserError naming the first client without examples."""
    sizes = partition.sizes
    if sizes.size and sizes.min() < 1:
        k = int(sizes.argmin())
        who = k if partition.ids is None else partition.ids[k]
        raise UserError(
            f"client {who} has no examples ({int((sizes < 1).sum())} of {len(sizes)} clients are empty); use fewer "
            f"clients, a larger alpha, or allow_empty=True."
        )
