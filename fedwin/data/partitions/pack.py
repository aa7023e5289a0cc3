"""What partitioners share: checks of arguments and results, classes of continuous labels, dealing, and the report."""

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
    """Raises UserError if there are fewer examples than num_clients x per_client."""
    if num_clients * per_client > num_examples:
        raise UserError(
            f"partition '{partition}': {num_clients} clients x {per_client} examples are more than the {num_examples} "
            f"training examples; use fewer clients."
        )


def assign_examples(by_class: list[np.ndarray], counts: np.ndarray, rng) -> list[np.ndarray]:
    """Draws the rows of each client, in random order, given the rows of each class and how many each gets [C, K]."""
    rows = np.concatenate([rng.permutation(rows)[: count.sum()] for rows, count in zip(by_class, counts, strict=True)])
    owner = np.concatenate([np.repeat(np.arange(len(count)), count) for count in counts])
    by_client = np.split(rows[np.argsort(owner, kind="stable")], np.cumsum(counts.sum(0))[:-1])
    return [rng.permutation(rows) for rows in by_client]


def finish(dataset: Dataset, partition: Partition, name: str) -> Partition:
    """Checks that no example is assigned twice, and completes the report.

    Returns:
      The partition with `report`: 'partition' (the name), 'sizes' [K], 'histogram' [K, C] (None for sequences, and
      more than MAX_CELLS counts), 'left_out' (number of examples that no client has), 'fallbacks' (number of draws that
      the rule could not make), and the entries of the partitioner.

    Raises:
      UserError: an example does not exist, or is assigned to two clients.
    """
    n = len(dataset.train["y"])
    order = partition.order
    if partition.offset[-1] != order.size:
        raise UserError(f"partition '{name}': offset does not end where order does; use Partition.from_lists.")
    if order.size:
        check_range(order, n, "example", f"partition '{name}' of '{dataset.name}'")
    used = np.zeros(n, bool)
    used[order] = True
    if np.count_nonzero(used) != order.size:
        twice = int(np.bincount(order, minlength=n).argmax())
        raise UserError(f"partition '{name}' assigns example {twice} to more than one client.")
    counted = dataset.task == "classification" and partition.num_clients * dataset.num_classes <= MAX_CELLS
    common = {
        "partition": name,
        "sizes": partition.sizes,
        "histogram": partition.class_counts(dataset.train["y"], dataset.num_classes) if counted else None,
        "left_out": int(n - order.size),
        "fallbacks": 0,
    }
    return partition._replace(report={**common, **partition.report})


def build(choice: str | Choice, dataset: Dataset, num_clients: int | None, seed: int) -> Partition:
    """Builds a partition by its choice, and finishes it."""
    choice = PARTITIONS.check(choice)
    built = PARTITIONS.build(choice, dataset, num_clients, seed)
    bins = choice.params.get("bins") if dataset.task == "regression" else None
    return finish(with_classes(dataset, choice.name, bins), built, choice.name)
