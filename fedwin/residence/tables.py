"""Client tables: on the host, rows of a dispatch's clients go to the device and come back; in a checkpoint, wherever they live."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedwin import engine
from fedwin.core import Algorithm
from fedwin.errors import UserError
from fedwin.runs.checkpoint import from_host


class HostTable:
    """All clients' rows in host memory, set on first use.

    A dispatch sees a small table with one row per client that it draws, so a client drawn twice within a dispatch sees
    its fresh row.

    Args:
      algorithm: its client_init makes the rows; params: the initial model; num_clients: K; capacity: rows on the device.
    """

    def __init__(self, algorithm: Algorithm, params, num_clients: int, capacity: int, init_key):
        self.algorithm = algorithm
        self.params = jax.tree.map(jnp.copy, params)
        self.capacity = capacity
        self.init_key = init_key
        row = jax.eval_shape(algorithm.client_init, params, jnp.zeros((), jnp.int32), init_key)
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
            fresh = engine.init_rows(self.algorithm, self.params, padded, self.init_key)
            jax.tree.map(lambda all, rows: all.__setitem__(some, np.asarray(rows)[: len(some)]), self.rows, fresh)
        self.filled[new] = True
        picked = np.resize(unique, self.capacity) if len(unique) else np.zeros(self.capacity, int)
        return jax.tree.map(lambda all: all[picked], self.rows)

    def scatter(self, unique: np.ndarray, table) -> None:
        """Writes the rows back after a dispatch."""
        jax.tree.map(lambda all, rows: all.__setitem__(unique, np.array(rows)[: len(unique)]), self.rows, table)

    def taken(self) -> "Rows":
        """Returns the rows of the clients that have taken part."""
        ids = np.flatnonzero(self.filled).astype(np.int32)
        return Rows(ids, jax.tree.map(lambda all: all[ids], self.rows), np.int32(len(self.filled)))

    def restore(self, saved: "Rows") -> None:
        self.filled[saved.ids] = True
        jax.tree.map(lambda all, rows: all.__setitem__(saved.ids, rows), self.rows, saved.rows)


class Rows(NamedTuple):
    """What a checkpoint holds of a client table, wherever that lives: ids int32 [n], rows tree of [n, ...], total K."""

    ids: Any
    rows: Any
    total: Any


def saved_form(run: engine.RunState, table: HostTable | None) -> engine.RunState:
    """Returns the Run as a checkpoint holds it: its table as Rows, of those who took part if it lives on the host."""
    leaves = jax.tree.leaves(run.table)
    if not leaves:
        return run
    if table is not None:
        return run._replace(table=table.taken())
    clients = leaves[0].shape[0]
    return run._replace(table=Rows(np.arange(clients, dtype=np.int32), run.table, np.int32(clients)))


def resume(
    leaves: dict[str, np.ndarray], run: engine.RunState, table: HostTable | None, clients: int
) -> engine.RunState:
    """Rebuilds a RunState from a checkpoint's leaves; a table on the host is restored in place.

    Args:
      leaves: of `saved_form`, by name; run: a fresh RunState of the same kind; table: the table on the host, or None;
        clients: K.

    Raises:
      UserError: the checkpoint belongs to another model, algorithm or federation.
    """
    if not jax.tree.leaves(run.table):
        return from_host(leaves, run)
    taken = len(leaves.get("table.ids", ()))
    rows = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((taken, *leaf.shape[1:]), leaf.dtype), run.table)
    like = Rows(jax.ShapeDtypeStruct((taken,), np.int32), rows, jax.ShapeDtypeStruct((), np.int32))
    found = from_host(leaves, run._replace(table=like))
    saved = found.table
    if saved.total != clients:
        raise UserError(f"the checkpoint holds the state of {saved.total} clients, the run has {clients}.")
    if table is not None:
        table.restore(saved)
        return found._replace(table=run.table)
    dense = jax.tree.map(lambda leaf: np.array(leaf, copy=True), run.table)
    jax.tree.map(lambda all, rows: all.__setitem__(saved.ids, rows), dense, saved.rows)
    return found._replace(table=dense)


def row_bytes(algorithm: Algorithm, params) -> int:
    """Returns the bytes of one client's row."""
    row = jax.eval_shape(algorithm.client_init, params, jax.ShapeDtypeStruct((), jnp.int32), jax.random.key(0))
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(row))
