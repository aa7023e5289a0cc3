"""The clients' data as a round sees it: how it is packed, and what one client is handed of it."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedwin import core, tree
from fedwin.data.dataset import offsets


class Store(NamedTuple):
    """The clients' data on the device; row k of `offset`, `info` and `weight` belongs to client row k.

    Attributes:
      examples: feature -> [N, ...].
      order: rows of the examples, client after client, int32 [n].
      offset: int32 [K + 1]; client k holds the examples order[offset[k]:offset[k + 1]].
      info: tree of [K, ...].
      weight: float [K], N_i / sum of all N.
    """

    examples: Any
    order: jax.Array | np.ndarray
    offset: jax.Array | np.ndarray
    info: Any
    weight: jax.Array

    def client(self, *, id, row, slot, key, round, state, stats, n_max: int, present=True) -> core.Client:
        """Returns what one client sees; may be traced.

        Args:
          id: the client's number, int32 [].
          row: its row of this store, int32 [].
          slot: its row of the client table, int32 [].
          key: its PRNG key of this round and phase.
          round: completed rounds before this one, int32 [].
          state: its row of the client table.
          stats: the broadcast model statistics.
          n_max: room for examples, at least as many as the client has.
          present: whether it is a client at all; padding has size 0.

        Returns:
          The client. Its index has n_max entries, of which the first `size` are valid.
        """
        begin = self.offset[row]
        size = jnp.where(present, self.offset[row + 1] - begin, 0)
        place = jnp.minimum(begin + jnp.arange(n_max, dtype=jnp.int32), self.order.shape[0] - 1)
        return core.Client(
            id=id,
            slot=slot,
            size=size,
            weight=self.weight[row],
            key=key,
            round=round,
            index=self.order[place],
            info=tree.map(lambda leaf: leaf[row], self.info),
            state=state,
            stats=stats,
            examples=self.examples,
        )


class Split(NamedTuple):
    """Stores of several devices, each of what its own part of every cohort needs; rows count within a device's.

    Attributes:
      parts: the stores, leaves [devices, ...].
    """

    parts: Store

    @property
    def own(self) -> Store:
        """The store of the device that a part of this belongs to, leaves [1, ...]."""
        return tree.map(lambda leaf: leaf[0], self.parts)


def shares(sizes, total=None) -> np.ndarray:
    """Returns the clients' shares N_i / `total` in jax's float: float32, and float64 where that is enabled.

    Args:
      sizes: N_i [K].
      total: examples of all clients; None: the sum of `sizes`.
    """
    sizes = np.asarray(sizes)
    return (sizes / (sizes.sum() if total is None else total)).astype(jnp.result_type(float))


def make_store(examples: dict[str, Any], sizes, *, order=None, info=(), weight=None) -> Store:
    """Packs the clients' data; nothing is placed on a device.

    Args:
      examples: feature -> [N, ...], kept as they are.
      sizes: number of examples of each client [K].
      order: rows of the examples, client after client [n]; 0..N-1 by default.
      info: tree of [K, ...], what clients are told about themselves.
      weight: share of each client [K]; `shares(sizes)` by default.

    Returns:
      The store, `order` and `offset` as int32.
    """
    sizes = np.asarray(sizes)
    if order is None:
        order = np.arange(len(next(iter(examples.values()))), dtype=np.int32)
    if weight is None:
        weight = shares(sizes)
    return Store(
        examples=examples,
        order=np.asarray(order, np.int32),
        offset=offsets(sizes).astype(np.int32),
        info=info,
        weight=weight,
    )
