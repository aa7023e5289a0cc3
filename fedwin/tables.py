"""Client tables that live on the host: rows of a dispatch's clients go to the device and come back."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedwin import engine
from fedwin.core import Algorithm


class HostTable:
    """All clients' rows in host memory, set on first use.

    A dispatch sees a small table with one row per client that it draws, so a client drawn twice within a dispatch sees
    its fresh row.

    Args:
      algorithm: its client_init makes the rows; params: the initial model; num_clients: K; capacity: rows on the device.
    """

    def __init__(self, algorithm: Algorithm, params, num_clients: int, capacity: int):
        self.algorithm = algorithm
        self.params = jax.tree.map(jnp.copy, params)
        self.capacity = capacity
        row = jax.eval_shape(algorithm.client_init, params, jnp.zeros((), jnp.int32))
        # np.zeros maps pages on first touch: rows of clients that never take part cost nothing.
        self.rows = jax.tree.map(lambda s: np.zeros((num_clients, *s.shape), s.dtype), row)
        self.filled = np.zeros(num_clients, bool)

    def slots(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns (unique ids, slots): slots has the shape of `ids`, padding (-1) falls off the end."""
        unique = np.unique(ids[ids >= 0])
        slots = np.where(ids >= 0, np.searchsorted(unique, np.maximum(ids, 0)), self.capacity)
        return unique, slots.astype(np.int32)

    def gather(self, unique: np.ndarray) -> Any:
        """Returns the rows of these clients, padded to the capacity, as host arrays."""
        new = unique[~self.filled[unique]]
        for start in range(0, len(new), self.capacity):
            some = new[start : start + self.capacity]
            padded = np.resize(some, self.capacity).astype(np.int32)
            fresh = engine.init_rows(self.algorithm, self.params, padded)
            jax.tree.map(lambda all, rows: all.__setitem__(some, np.asarray(rows)[: len(some)]), self.rows, fresh)
        self.filled[new] = True
        picked = np.resize(unique, self.capacity) if len(unique) else np.zeros(self.capacity, int)
        return jax.tree.map(lambda all: all[picked], self.rows)

    def scatter(self, unique: np.ndarray, table) -> None:
        """Writes the rows back after a dispatch."""
        jax.tree.map(lambda all, rows: all.__setitem__(unique, np.array(rows)[: len(unique)]), self.rows, table)

    def leaves(self) -> dict[str, Any]:
        """Returns what a checkpoint must hold."""
        return {"rows": self.rows, "filled": self.filled}

    def restore(self, saved: dict[str, Any]) -> None:
        self.rows = jax.tree.map(np.array, saved["rows"])
        self.filled = np.array(saved["filled"])


def row_bytes(algorithm: Algorithm, params) -> int:
    """Returns the bytes of one client's row."""
    row = jax.eval_shape(algorithm.client_init, params, jax.ShapeDtypeStruct((), jnp.int32))
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(row))
