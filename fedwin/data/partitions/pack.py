"""Last steps of every partitioner: argument checks, packing lists of rows, and the report."""

import numpy as np

from fedwin.data.dataset import MAX_CELLS, Dataset, Partition
from fedwin.errors import UserError


def labels_of(dataset: Dataset, partition: str) -> np.ndarray:
    """Returns the labels of the training examples [N]; raises UserError if each example has several."""
    labels = np.asarray(dataset.train["y"])
    if labels.ndim != 1:
        raise UserError(
            f"partition '{partition}' needs one label per example, and data set '{dataset.name}' has labels of shape "
            f"{labels.shape}; use its own clients (--partition=natural) or iid."
        )
    return labels


def check_counts(partition: str, num_examples: int, num_clients: int, per_client: int = 1) -> None:
    """Raises UserError if there are no clients, or fewer examples than num_clients x per_client."""
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
    """Counts examples by client and class, int32 [K, C]; None for sequences, and for more than MAX_CELLS counts."""
    if dataset.task != "classification" or partition.num_clients * dataset.num_classes > MAX_CELLS:
        return None
    return partition.class_counts(dataset.train["y"], dataset.num_classes)


def finish(dataset: Dataset, partition: Partition, name: str, **report) -> Partition:
    """Checks that no example is assigned twice, and adds the report.

    Returns:
      The partition with `report`: 'partition' (the name), 'sizes' [K], 'histogram' [K, C] or None, 'left_out' (number
      of examples that no client has), 'fallbacks' (number of draws that the rule could not make), and the further
      entries.

    Raises:
      UserError: an example does not exist, or is assigned to two clients.
    """
    n = len(dataset.train["y"])
    order = partition.order
    if order.size and (order.min() < 0 or order.max() >= n):
        raise UserError(f"partition '{name}' contains example {order.max()}, but '{dataset.name}' has only {n}.")
    used = np.zeros(n, bool)
    used[order] = True
    if np.count_nonzero(used) != order.size:
        twice = int(np.bincount(order, minlength=n).argmax())
        raise UserError(f"partition '{name}' assigns example {twice} to more than one client.")
    common = {
        "partition": name,
        "sizes": partition.sizes,
        "histogram": histogram(dataset, partition),
        "left_out": int(n - order.size),
        "fallbacks": 0,
    }
    return partition._replace(report={**common, **report})


def pack(dataset: Dataset, lists, name: str, **report) -> Partition:
    """Packs one list of rows per client into a finished partition, as from `finish`."""
    return finish(dataset, Partition.from_lists(lists), name, **report)
