"""What a loader returns, before examples are dealt to clients, and the deal itself."""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

# Feature -> array, memory map or `reader.Images`.
Examples = dict[str, Any]

# Class counts of more clients x classes than this (hundreds of thousands of users) cost more than they tell.
MAX_CELLS = 1 << 26


def offsets(sizes) -> np.ndarray:
    """Returns where each of several consecutive pieces begins and the last one ends.

    Args:
      sizes: length of each piece [K].

    Returns:
      [0, sizes[0], sizes[0] + sizes[1], ...], int64 [K + 1].
    """
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


class Partition(NamedTuple):
    """Which training examples each client holds: client k has `order[offset[k]:offset[k + 1]]`.

    Attributes:
      order: rows of the training examples in draw order, int32 [n].
      offset: int64 [K + 1].
      report: the partitioner's report ('left_out', 'fallbacks', ...).
      ids: client ids as bytes or str, for natural federations [K]; None means 0..K-1.
      domain: the domain of each client, int32 [K]; None where there are none.
    """

    order: np.ndarray
    offset: np.ndarray
    report: Mapping[str, Any] = MappingProxyType({})
    ids: np.ndarray | None = None
    domain: np.ndarray | None = None

    @property
    def num_clients(self) -> int:
        """K."""
        return len(self.offset) - 1

    @property
    def sizes(self) -> np.ndarray:
        """Number of examples of each client [K]."""
        return np.diff(self.offset)

    def client(self, k: int) -> np.ndarray:
        """Returns the rows of one client's training examples."""
        return self.order[self.offset[k] : self.offset[k + 1]]

    def class_counts(self, labels: np.ndarray, num_classes: int) -> np.ndarray:
        """Counts the examples of each class that each client holds.

        Args:
          labels: those of all examples [N].
          num_classes: C.

        Returns:
          int32 [K, C].
        """
        owner = np.repeat(np.arange(self.num_clients, dtype=np.int64), self.sizes)
        cells = owner * num_classes + np.asarray(labels)[self.order]
        counts = np.bincount(cells, minlength=self.num_clients * num_classes)
        return counts.reshape(self.num_clients, num_classes).astype(np.int32)

    @classmethod
    def from_lists(cls, lists, **fields) -> "Partition":
        """Packs one index array per client; the rows of a matrix, where all have equally many."""
        if isinstance(lists, np.ndarray):
            return cls(lists.astype(np.int32).reshape(-1), offsets(np.full(len(lists), lists.shape[1])), **fields)
        sizes = np.array([len(rows) for rows in lists], np.int64)
        order = np.concatenate([np.asarray(rows, np.int32) for rows in lists]) if len(lists) else np.zeros(0, np.int32)
        return cls(order.astype(np.int32), offsets(sizes), **fields)


@dataclasses.dataclass(frozen=True)
class Dataset:
    """One data set on the host.

    Attributes:
      name: the name it is registered under.
      train: feature -> array with a leading example axis; 'x' is the input (uint8 images stay uint8, NHWC) and 'y' the
        int32 label, [N] or, for sequences, [N, T]. 'domain' int32 [N] where there are domains. Large sets have memory
        maps or `reader.Images`, which decode images on access.
      test: the same of the test examples.
      num_classes: classes, or size of the vocabulary.
      task: 'classification' (one label per example) or 'sequence' (one label per position, 0 = padding).
      mean: per-channel mean of x, after division by 255 if x is uint8; None leaves x as it is.
      std: per-channel standard deviation, likewise.
      natural: the data set's own clients, or None.
      class_names: for pictures; may be empty.
      domain_names: for pictures; may be empty.
      verified: False where a checksum of the original files, or of the cache, could not be confirmed.
      test_natural: the clients that hold the test examples, or None; they need not be the training clients.
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
