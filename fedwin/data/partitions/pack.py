"""Last steps of every partitioner: argument checks, packing lists of rows, and the report."""

import dataclasses

import numpy as np

from fedwin.data.checks import check_range
from fedwin.data.dataset import MAX_CELLS, PARTITIONS, Dataset, Partition
from fedwin.errors import UserError
from fedwin.registry import Choice

# Quantile bins of a continuous label, unless a partition is given another number.
BINS = 10


def with_classes(dataset: Dataset, partition: str, bins: int | None = None) -> Dataset:
    """Returns a data set whose labels are classes: of a continuous label, the bins between its quantiles.

        c_i = #{b in 1..B-1: y_i >= quantile(y, b / B)},   numbered without the bins that no example is in

    A data set that has classes is returned as it is; another one has nothing but the labels, in BINS bins by default.

    Raises:
      UserError: a number of bins is given for classes.
    """
    if dataset.task != "regression":
        if bins is not None:
            raise UserError(f"partition '{partition}': '{dataset.name}' has classes, not numbers to bin; omit bins.")
        return dataset
    y, count = np.asarray(dataset.train["y"], np.float64), bins or BINS
    edges = np.quantile(y, np.arange(1, count) / count)
    used, bin_of = np.unique(np.searchsorted(edges, y, side="right"), return_inverse=True)
    labels = {"y": bin_of.astype(np.int32)}
    return dataclasses.replace(dataset, train=labels, num_classes=len(used), task="classification")


def labels_of(dataset: Dataset, partition: str) -> np.ndarray:
    """Returns the classes of the training examples [N]; raises UserError if an example has several, or a number."""
    labels = np.asarray(dataset.train["y"])
    if dataset.task == "regression":
        raise UserError(
            f"partition '{partition}' needs classes, and '{dataset.name}' has continuous labels; use dirichlet, "
            f"yurochkin or quantity, which take quantile bins, or iid."
        )
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
    if num_clients * per_client > num_examples:
        raise UserError(
            f"partition '{partition}': {num_clients} clients x {per_client} examples are more than the {num_examples} "
            f"training examples; use fewer clients."
        )


def histogram(dataset: Dataset, partition: Partition) -> np.ndarray | None:
    """Counts examples by client and class or bin, int32 [K, C]; None for sequences, and more than MAX_CELLS counts."""
    dataset = with_classes(dataset, "histogram")
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
    if order.size:
        check_range(order, n, "example", f"partition '{name}' of '{dataset.name}'")
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


def build(choice: str | Choice, dataset: Dataset, num_clients: int | None, seed: int) -> Partition:
    """Builds a partition by its choice; that of a user is checked and gets its report here, as others by `finish`."""
    choice = PARTITIONS.check(choice)
    built = PARTITIONS.build(choice, dataset, num_clients, seed)
    if PARTITIONS[choice.name].__module__.startswith("fedwin."):
        return built
    if built.offset[-1] != len(built.order):
        raise UserError(f"partition '{choice.name}': offset does not end where order does; use Partition.from_lists.")
    finished = finish(dataset, built, choice.name)
    return finished._replace(report={**built.report, **finished.report})
