"""A data set dealt to clients: what the engine trains on and evaluates with."""

import dataclasses
import functools
from typing import Any

import jax
import numpy as np

from fedwin import tree
from fedwin.data import integrity
from fedwin.data.check import check_labels
from fedwin.data.dataset import MAX_CELLS, Dataset, Partition
from fedwin.data.store import Store, make_store
from fedwin.errors import UserError

MAX_BUCKETS = 3


def buckets_below(largest: int) -> tuple[int, ...]:
    """Returns the sizes that clients of up to `largest` examples are padded to: it, its half and its quarter."""
    return tuple(sorted({-(-largest // (1 << i)) for i in range(MAX_BUCKETS)}))


@dataclasses.dataclass(frozen=True)
class Federation:
    """Clients, their training examples and the common test set.

    Attributes:
      dataset: the examples.
      partition: the clients' training examples.
      validation: their held-out examples, or None.
      info: tree of [K, ...] that clients see as Client.info: 'train' and 'validation' label counts [K, C] for
        classification up to MAX_CELLS, 'domain' [K] where there are domains.
    """

    dataset: Dataset
    partition: Partition
    validation: Partition | None
    info: Any

    @property
    def num_clients(self) -> int:
        """K."""
        return self.partition.num_clients

    @functools.cached_property
    def sizes(self) -> np.ndarray:
        """Number of training examples of each client [K]."""
        # Kept, as what follows from it: every dispatch asks, and there may be millions of clients.
        return self.partition.sizes

    @functools.cached_property
    def equal_size(self) -> int | None:
        """N if every client holds exactly N examples, else None."""
        sizes = self.sizes
        return int(sizes[0]) if (sizes == sizes[0]).all() else None

    @functools.cached_property
    def buckets(self) -> tuple[int, ...]:
        """Client sizes that cohorts are padded to: the largest, and its half and quarter where sizes differ."""
        largest = int(self.sizes.max())
        if self.equal_size is not None:
            return (largest,)
        return buckets_below(largest)

    def most(self, ids) -> int:
        """Returns the examples of the largest client of `ids` (-1 = padding)."""
        ids = np.asarray(ids)
        return int(self.sizes[ids[ids >= 0]].max(initial=1))

    def bucket(self, ids) -> int:
        """Returns the smallest bucket that holds every client of `ids` (-1 = padding)."""
        most = self.most(ids)
        return next(b for b in self.buckets if b >= most)

    def store(self) -> Store:
        """Returns the device's view of the training data, as host arrays.

        Raises:
          UserError: the examples come from a packed cache that is damaged.
        """
        integrity.check_arrays({name: self.dataset.train[name] for name in ("x", "y")})
        examples = {name: np.asarray(self.dataset.train[name]) for name in ("x", "y")}
        return make_store(examples, self.sizes, order=self.partition.order, info=self.info)

    def shapes(self) -> Store:
        """Returns shapes and dtypes like those of a Store on the device, for counting; reads no example."""
        spec = lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)
        examples = {name: spec(self.dataset.train[name]) for name in ("x", "y")}
        return tree.map(spec, make_store(examples, self.sizes, order=self.partition.order, info=self.info))


def federate(dataset: Dataset, partition: Partition, validation: Partition | None = None) -> Federation:
    """Checks a deal and returns the federation.

    Args:
      dataset: the examples.
      partition: the clients' training examples.
      validation: their held-out examples, or None.

    Raises:
      UserError: a client without examples, an example that does not exist, a label outside the classes, or a damaged
        cache.
    """
    for split, features in (("train", dataset.train), ("test", dataset.test)):
        # A memory map is a packed cache: checked when it was written, and perhaps too large to read for this.
        if not isinstance(features["y"], np.memmap):
            check_labels(features["y"], dataset.num_classes, f"data set '{dataset.name}', {split}")
    sizes = partition.sizes
    if partition.num_clients < 1:
        raise UserError(f"dataset {dataset.name}: the partition has no clients.")
    if (sizes < 1).any():
        empty = int(np.argmin(sizes))
        name = empty if partition.ids is None else partition.ids[empty]
        raise UserError(f"client {name} has no examples; use fewer clients or a partition that leaves none empty.")
    total = len(dataset.train["y"])
    if partition.order.size and (partition.order.min() < 0 or partition.order.max() >= total):
        raise UserError(f"the partition names example {partition.order.max()}, but there are {total}.")
    info: dict[str, Any] = {}
    if dataset.task == "classification" and partition.num_clients * dataset.num_classes <= MAX_CELLS:
        integrity.check_arrays({"y": dataset.train["y"]})  # counting reads all labels
        counts = lambda part: part.class_counts(dataset.train["y"], dataset.num_classes)
        info["train"] = counts(partition)
        info["validation"] = np.zeros_like(info["train"]) if validation is None else counts(validation)
    if partition.domain is not None:
        info["domain"] = np.asarray(partition.domain, np.int32)
    return Federation(dataset, partition, validation, info)
