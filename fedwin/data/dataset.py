"""Dataset and Partition, the registries of loaders and partitioners, and the split of validation examples."""

import dataclasses
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Self, get_args

import numpy as np

from fedwin.data.rng import generator
from fedwin.errors import UserError
from fedwin.registry import Registry
from fedwin.registry.ranges import NonNegativeInt, check_values

# Feature -> array, memory map or `example_source.Images`.
Examples = dict[str, Any]

# Class counts [K, C] are computed up to this many entries; beyond it (hundreds of thousands of clients) they are too
# expensive.
MAX_CELLS = 1 << 26


def offsets(sizes) -> np.ndarray:
    """Returns [0, sizes[0], sizes[0] + sizes[1], ...], int64 [K + 1]: where K segments begin and end."""
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


class Partition(NamedTuple):
    """Assignment of training examples to clients: client k holds the rows `order[offset[k]:offset[k + 1]]`.

    A named tuple of arrays over all clients, so it can be unpacked and its fields read by name. `client(k)` returns
    the rows of one client; `partition[k]` is an error.

    Attributes:
      order: rows of the training examples, client after client, int32 [n].
      offset: int64 [K + 1].
      report: the partitioner's report ('left_out', 'fallbacks', ...).
      ids: client ids as bytes or str [K], for natural federations; None means 0..K-1.
      domain: the domain of each client, int32 [K]; None for data sets without domains.

    Example:
      >>> partition = Partition.from_lists([[4, 0], [2, 1, 3]])
      >>> partition.client(1).tolist(), partition.sizes.tolist()
      ([2, 1, 3], [2, 3])
    """

    order: np.ndarray
    offset: np.ndarray
    report: Mapping[str, Any] = MappingProxyType({})
    ids: np.ndarray | None = None
    domain: np.ndarray | None = None

    def __getitem__(self, index):
        """Raises TypeError: as a tuple's item, `partition[0]` would be the rows of all clients."""
        raise TypeError(
            f"Partition[{index!r}]: a partition can't be indexed; use partition.client(k) for the rows of client k, or "
            "a field such as partition.order."
        )

    @property
    def num_clients(self) -> int:
        """Number of clients K."""
        return len(self.offset) - 1

    @property
    def sizes(self) -> np.ndarray:
        """Number of examples of each client [K]."""
        return np.diff(self.offset)

    def client(self, k: int) -> np.ndarray:
        """Returns the rows of the training examples that client k holds, int32 [N_k]; IndexError unless 0 <= k < K."""
        if not 0 <= k < self.num_clients:
            raise IndexError(f"client {k} is not in 0..{self.num_clients - 1}")
        return self.order[self.offset[k] : self.offset[k + 1]]

    def select(self, clients: np.ndarray) -> "Partition":
        """Returns the partition of some clients, int [n], in the given order; its report is empty."""
        begin = self.offset[clients]
        sizes = self.offset[clients + 1] - begin  # not a difference of all: there may be millions of clients
        offset = offsets(sizes)
        places = np.arange(offset[-1]) + np.repeat(begin - offset[:-1], sizes)
        pick = lambda values: None if values is None else values[clients]
        return Partition(self.order[places], offset, ids=pick(self.ids), domain=pick(self.domain))

    def where(self, kept: np.ndarray) -> "Partition":
        """Returns the partition without the examples at those places in `order` that are false in a mask, bool [n].

        Clients may lose all examples. The report has the new 'sizes' and the entries that remain true.
        """
        offset = offsets(kept)[self.offset]
        lasting = ("partition", "chosen_from", "path")
        report = {name: value for name, value in self.report.items() if name in lasting}
        return self._replace(order=self.order[kept], offset=offset, report=report | {"sizes": np.diff(offset)})

    def class_counts(self, labels: np.ndarray, num_classes: int) -> np.ndarray:
        """Counts examples by client and class, int32 [K, C]; `labels` [N] are those of all training examples."""
        owner = np.repeat(np.arange(self.num_clients, dtype=np.int64), self.sizes)
        cells = owner * num_classes + np.asarray(labels)[self.order]
        counts = np.bincount(cells, minlength=self.num_clients * num_classes)
        return counts.reshape(self.num_clients, num_classes).astype(np.int32)

    @classmethod
    def from_lists(cls, lists, **fields) -> "Partition":
        """Builds a partition from one index array per client, or from a matrix [K, n] if all clients hold n examples.

        Further fields of the partition, such as `ids`, are taken unchanged.
        """
        if isinstance(lists, np.ndarray):
            return cls(lists.astype(np.int32).reshape(-1), offsets(np.full(len(lists), lists.shape[1])), **fields)
        sizes = np.array([len(rows) for rows in lists], np.int64)
        order = np.concatenate([np.asarray(rows, np.int32) for rows in lists]) if len(lists) else np.zeros(0, np.int32)
        return cls(order.astype(np.int32), offsets(sizes), **fields)

    @classmethod
    def consecutive(cls, sizes, **fields) -> "Partition":
        """Builds a partition whose clients hold consecutive examples, given the number of each client's [K].

        Further fields as for `from_lists`.
        """
        offset = offsets(sizes)
        return cls(np.arange(offset[-1], dtype=np.int32), offset, **fields)


Task = Literal["classification", "sequence", "regression"]
TASKS: tuple[str, ...] = get_args(Task)


@dataclasses.dataclass(frozen=True)
class Dataset:
    """Training and test examples in host memory or memory-mapped files, with the metadata needed to train on them.

    Attributes:
      train: feature -> array with a leading example axis; 'x' is the input (uint8 images stay uint8, NHWC) and 'y' the
        label, int32 [N], for sequences int32 [N, T], for regression float32 [N]; data sets with domains have 'domain',
        int32 [N]. Large data sets have memory maps or `example_source.Images`, which decode images on access.
      num_classes: number of classes, or size of the vocabulary; for regression 1, the network's output.
      task: 'classification' (one label per example), 'sequence' (one label per position, 0 = padding) or 'regression'
        (one continuous label per example).
      mean: per-channel mean of x, after division by 255 if x is uint8; None leaves x unchanged.
      std: per-channel standard deviation of x, likewise.
      class_names: names of the classes in figures; may be empty.
      domain_names: names of the domains; if there are any, the test accuracy is the mean of the domains' accuracies.
      verified: whether the checksums of the original files, or of the cache, have been confirmed.
      test_natural: the clients that hold the test examples, or None; they may differ from the training clients.
      accuracies: for sequences, name -> (label ids that are not counted, ids that are never predicted).
    """

    name: str
    train: Examples
    test: Examples
    num_classes: int
    task: str = "classification"
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    natural: Partition | None = None
    class_names: tuple[str, ...] = ()
    domain_names: tuple[str, ...] = ()
    verified: bool = True
    test_natural: Partition | None = None
    accuracies: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]] = dataclasses.field(
        default_factory=lambda: {"accuracy": ((0,), ())}
    )

    def __repr__(self) -> str:
        """Shows sizes, not examples, in a notebook."""
        x = self.train["x"]
        kind = {"sequence": "positions to label", "regression": "one number each"}.get(self.task, "one label each")
        classes = "" if self.task == "regression" else f", {self.num_classes} classes"
        own = "" if self.natural is None else f"; {self.natural.num_clients:,} clients of its own"
        return (
            f"Dataset {self.name!r}: {len(x):,} training and {len(self.test['x']):,} test examples{own}\n"
            f"  x {x.dtype} {tuple(x.shape[1:])}, {kind}{classes}"
        )

    @classmethod
    def of_clients(cls, name: str, sides: Iterable[tuple], num_classes: int, **fields: Any) -> Self:
        """Builds a data set from (examples, the clients that hold them) for training and test, and further fields."""
        (train, natural), (test, test_natural) = sides
        return cls(name, train, test, num_classes, natural=natural, test_natural=test_natural, **fields)


class FullSize(NamedTuple):
    """Size of a complete data set, as published; None for numbers that are not known.

    Attributes:
      clients: number of the data set's own clients that hold training examples.
    """

    train: int | None = None
    test: int | None = None
    clients: int | None = None


# Loaders: builder(data_dir, *, option=...) -> Dataset. data_dir is the folder of the files, or a parent of it; missing
# or damaged files raise UserError. Facts that a loader may state about its data set:
#   how: how to obtain a data set that is neither downloaded nor fetched by hand.
#   full: FullSize of the complete data set, or a function from all parameters of the loader to it.
#   classes: number of classes of a classification, for chance; None: not stated.
#   downloads: URLs of its files; variants: parameters -> URLs, for choices that read other files.
#   by_hand: files that can't be downloaded automatically, and where to find them.
#   checksums: file -> (kind, checksum). A name with a compression suffix stands for the file as it is distributed, one
#     without for the decoded content, however it is stored.
DATASETS = Registry(
    "dataset",
    builds=Dataset,
    common={
        "n": "number of training examples.",
        "tests": "number of test examples.",
        "clients": "number of clients.",
        "per_domain": "number of training examples of each domain.",
        "per_client": "number of examples of each client.",
        "users": "number of clients.",
        "rows": "number of training rows.",
        "vocabulary_size": "number of most frequent words that get their own id.",
        "size": "side of the images in pixels, cropped from the center of the scaled image.",
        "resize": "pixels that the short side is scaled to.",
        "length": "number of positions per row T.",
        "constants": "normalization constants: cifar10, cifar100 or ima.",
        "num_classes": "number of classes; the largest label + 1 by default.",
        "label": "level of the labels that is y: fine or coarse.",
        "task": "classification, sequence (by default if labels have a position axis) or regression.",
        "window": "length of a window W.",
        "horizon": "steps from the last value of a window to its label h.",
        "test_share": "share of each series, its end, whose values are the labels of test examples.",
        "seed": "seed of the random choices.",
    },
    how="your own files",
    full=FullSize(),
    classes=None,
    downloads=(),
    variants=(),
    by_hand="",
    checksums=(),
)

# Partitioners: builder(dataset, num_clients, seed, *, option=...) -> Partition; they split the training examples over
# num_clients = K clients with a seed >= 0, and raise UserError if there are too few examples or labels to do so.
PARTITIONS = Registry(
    "partition", common={"bins": "number of quantile bins of a continuous label, 10 by default."}, builds=Partition
)


def floor_of_share(share: float | np.ndarray, total):
    """Returns floor(share * total): 29 of 100 for 0.29, although the product is 28.999... in binary."""
    return np.floor(share * total + 1e-9).astype(np.int64)


def split_validation(partition: Partition, fraction: float, seed: int) -> tuple[Partition, Partition]:
    """Splits every client's n examples at random into n - n_val for training and n_val = floor(fraction n).

    Args:
      fraction: share of validation examples, in [0, 1); UserError otherwise.
      seed: seed of the random choice, >= 0.

    Returns:
      (training partition, validation partition), both with the ids, domains and order of examples of `partition`. Small
      clients may have no validation examples.

    Example:
      >>> training, validation = split_validation(Partition.from_lists([range(10), range(10, 15)]), 0.2, seed=0)
      >>> training.sizes.tolist(), validation.sizes.tolist()
      ([8, 4], [2, 1])
    """
    if not isinstance(fraction, (int, float, np.floating)) or not 0 <= fraction < 1:
        raise UserError(f"val_fraction={fraction}; give a number from 0 up to, but not including, 1.")
    check_values("split_validation", NonNegativeInt, seed=seed)
    sizes = partition.sizes
    num_held = floor_of_share(fraction, sizes)
    client = np.repeat(np.arange(len(sizes)), sizes)
    shuffled = np.lexsort((generator(seed, "validation").random(len(client)), client))
    is_held = np.zeros(len(client), bool)
    is_held[shuffled] = np.arange(len(client)) - partition.offset[:-1].repeat(sizes) < num_held.repeat(sizes)
    return partition.where(~is_held), partition.where(is_held)
