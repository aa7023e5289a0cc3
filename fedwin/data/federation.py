"""A data set partitioned over clients: Federation on the host, and Store, its packed form on the device."""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedwin import core, tree
from fedwin.data import integrity
from fedwin.data.dataset import MAX_CELLS, Dataset, Examples, Partition, offsets

# Number of sizes that cohorts are padded to.
MAX_BUCKETS = 3


class Store(NamedTuple):
    """The clients' examples as a round reads them; row k of `offset`, `info` and `weight` belongs to client row k.

    Attributes:
      examples: feature -> [N, ...].
      order: rows of the examples, client after client, int32 [n].
      offset: int32 [K + 1]; client k holds the examples order[offset[k]:offset[k + 1]].
      info: tree of [K, ...], see Federation.info.
      weight: share of the examples N_k / sum_j N_j, float [K].
    """

    examples: Examples
    order: jax.Array | np.ndarray
    offset: jax.Array | np.ndarray
    info: tree.PyTree
    weight: jax.Array

    def client(self, place: core.Cohort, *, key, round, state, stats, n_max: int) -> core.Client:
        """Builds the view of one client that algorithms get; may be traced.

        Args:
          place: its place in a cohort, arrays []; one without a client gets size 0.
          round: number of completed rounds, int32 [].
          n_max: length of the padded index, at least the client's number of examples.

        Returns:
          The core.Client. Its index has n_max entries; the first `size` are valid.
        """
        # Rows exist, so their sign is not tested.
        at = lambda leaf, k: jnp.asarray(leaf).at[k].get(mode="promise_in_bounds", wrap_negative_indices=False)
        row = place.rows
        begin = at(self.offset, row)
        size = jnp.where(place.present, at(self.offset, row + 1) - begin, 0)
        positions = jnp.minimum(begin + jnp.arange(n_max, dtype=jnp.int32), self.order.shape[0] - 1)
        return core.Client(
            id=place.ids,
            slot=place.slots,
            size=size,
            weight=at(self.weight, row),
            key=key,
            round=round,
            index=at(self.order, positions),
            info=tree.map(lambda leaf: at(leaf, row), self.info),
            state=state,
            stats=stats,
            examples=self.examples,
            importance=place.importance,
            work=place.work,
            staleness=place.staleness,
        )


class ShardedStore(NamedTuple):
    """One Store per device, with the clients of that device's part of every cohort; rows count within a device.

    The leaves of `parts` are [devices, ...].
    """

    parts: Store

    @property
    def own(self) -> Store:
        """The current device's store; inside a sharded computation the leaves of `parts` are [1, ...]."""
        return tree.map(lambda leaf: leaf[0], self.parts)


def client_weights(sizes, total=None) -> np.ndarray:
    """Computes the shares of the examples N_k / total [K], in jax's default float type; total = sum_k N_k."""
    sizes = np.asarray(sizes)
    return (sizes / (sizes.sum() if total is None else total)).astype(jnp.result_type(float))


def make_store(examples: Examples, sizes, *, order=None, info=(), weight=None) -> Store:
    """Packs the clients' examples into a Store of host arrays; nothing is copied to a device.

    Args:
      sizes: N_k [K].
      order: rows of the examples, client after client [n]; 0..N-1 by default.
      weight: share of each client [K]; `client_weights(sizes)` by default.
    """
    sizes = np.asarray(sizes)
    if order is None:
        order = np.arange(len(next(iter(examples.values()))), dtype=np.int32)
    if weight is None:
        weight = client_weights(sizes)
    return Store(
        examples=examples,
        order=np.asarray(order, np.int32),
        offset=offsets(sizes).astype(np.int32),
        info=info,
        weight=weight,
    )


@dataclasses.dataclass(frozen=True)
class Federation:
    """A data set and its partition into clients: what the engine trains on and evaluates with.

    Attributes:
      info: tree of [K, ...] that algorithms read as Client.info: 'train' and 'validation', label counts [K, C], for
        classification with K C <= MAX_CELLS; 'domain' [K] if the partition has domains.
      changes: what decides how its examples differ from the stored ones (data.changes); '' if they do not.
    """

    dataset: Dataset
    partition: Partition
    validation: Partition | None
    info: tree.PyTree
    changes: str = ""

    @property
    def num_clients(self) -> int:
        """Number of clients K."""
        return self.partition.num_clients

    @property
    def features(self) -> Examples:
        """The features of the training examples that clients have: x and y."""
        return {name: self.dataset.train[name] for name in ("x", "y")}

    @functools.cached_property
    def sizes(self) -> np.ndarray:
        """Number of training examples of each client [K]."""
        # Cached: every dispatch reads it, and there may be millions of clients.
        return self.partition.sizes

    @functools.cached_property
    def equal_size(self) -> int | None:
        """N if every client holds exactly N examples, else None."""
        sizes = self.sizes
        return int(sizes[0]) if (sizes == sizes[0]).all() else None

    @functools.cached_property
    def buckets(self) -> tuple[int, ...]:
        """Sizes that cohorts are padded to."""
        return buckets_of(self.sizes)

    def most(self, ids) -> int:
        """Returns the number of examples of the largest of some clients, int [n]."""
        return int(self.sizes[np.asarray(ids)].max(initial=1))

    def bucket(self, ids) -> int:
        """Returns the smallest bucket that fits each of some clients, int [n]."""
        most = self.most(ids)
        return next(bucket for bucket in self.buckets if bucket >= most)

    def store(self) -> Store:
        """Packs the training examples into a Store of host arrays.

        Raises:
          UserError: the examples come from a damaged cache.
        """
        integrity.check_arrays(self.features)
        examples = {name: np.asarray(values) for name, values in self.features.items()}
        return make_store(examples, self.sizes, order=self.partition.order, info=self.info)

    def shapes(self) -> Store:
        """Returns a Store of ShapeDtypeStructs, for estimates of memory; reads no example."""
        spec = lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)
        examples = {name: spec(values) for name, values in self.features.items()}
        return tree.map(spec, make_store(examples, self.sizes, order=self.partition.order, info=self.info))


def buckets_of(sizes: np.ndarray) -> tuple[int, ...]:
    """Returns the sizes that cohorts are padded to: the largest client's, and its half and quarter if sizes differ."""
    largest = int(sizes.max())
    if sizes.min() == largest:
        return (largest,)
    return tuple(sorted({-(-largest // (1 << i)) for i in range(MAX_BUCKETS)}))


def federate(dataset: Dataset, partition: Partition, validation: Partition | None = None) -> Federation:
    """Combines a data set that `check` accepts and a partition that `make_partition` returns to a Federation.

    Raises:
      UserError: the labels come from a damaged cache.
    """
    info: dict[str, np.ndarray] = {}
    if dataset.task == "classification" and partition.num_clients * dataset.num_classes <= MAX_CELLS:
        integrity.check_arrays({"y": dataset.train["y"]})  # counting reads all labels
        counts = lambda part: part.class_counts(dataset.train["y"], dataset.num_classes)
        info["train"] = counts(partition)
        info["validation"] = np.zeros_like(info["train"]) if validation is None else counts(validation)
    if partition.domain is not None:
        info["domain"] = np.asarray(partition.domain, np.int32)
    return Federation(dataset, partition, validation, info)
