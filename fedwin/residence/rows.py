"""Where clients' rows live between rounds: on the device, or on the host; and how a checkpoint holds them.

Both kinds have the same few methods: `take(run, ids) -> (run, slots)` puts the rows of a dispatch's clients into the
state, `give(run)` takes them back after it; `saved(run)`, `template(run, leaves)` and `restored(found, run)` are for
checkpoints.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedwin import tree
from fedwin.core import Algorithm
from fedwin.errors import UserError
from fedwin.residence.addresses import distinct, places

# A client table above this many bytes goes to the host unless --table says otherwise.
HOST_TABLE_BYTES = 4 << 30


class Rows(NamedTuple):
    """What a checkpoint holds of a client table, wherever that lives.

    Attributes:
      ids: clients whose rows are kept, int32 [n].
      rows: tree of [n, ...].
      total: K.
    """

    ids: Any
    rows: Any
    total: Any


def init_rows(algorithm: Algorithm, params, ids, init_key):
    """Returns the table rows of clients that have not taken part yet, stacked along axis 0.

    Args:
      algorithm: its client_init makes them.
      params: the initial model.
      ids: the clients, int32 [n].
      init_key: draws what is random in them.
    """
    return jax.jit(jax.vmap(algorithm.client_init, (None, 0, None)))(params, ids, init_key)


def row_shapes(algorithm: Algorithm, params):
    """Returns the shapes and dtypes of one client's row."""
    return jax.eval_shape(algorithm.client_init, params, jax.ShapeDtypeStruct((), jnp.int32), jax.random.key(0))


def _template(run, leaves, num_clients: int):
    """A state like `run` whose table has the shapes of the Rows that a checkpoint's leaves hold."""
    if tree.is_empty(run.table):
        return run
    taken = len(leaves.get("table.ids", ()))
    rows = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((taken, *leaf.shape[1:]), leaf.dtype), run.table)
    spec = jax.ShapeDtypeStruct
    return run._replace(table=Rows(spec((taken,), np.int32), rows, spec((), np.int32)))


def _check_total(saved: Rows, num_clients: int) -> None:
    if saved.total != num_clients:
        raise UserError(f"the checkpoint holds the state of {saved.total} clients, the run has {num_clients}.")


def _write(table, ids, rows) -> None:
    """Writes rows [n, ...] into arrays [K, ...] in place."""
    for everyone, some in zip(jax.tree.leaves(table), jax.tree.leaves(rows), strict=True):
        everyone[ids] = some


class DeviceRows:
    """Rows that stay on the device: the state's table has one for every client.

    Args:
      num_clients: K.

    Attributes:
      slots: rows of the table in the state.
    """

    def __init__(self, num_clients: int):
        self.num_clients = self.slots = num_clients

    def take(self, run, ids: np.ndarray):
        """Returns the state as it is, and every client's row of its table."""
        return run, np.where(ids >= 0, ids, self.num_clients).astype(np.int32)

    def give(self, run) -> None:
        """Nothing has to be written back."""

    def saved(self, run):
        """Returns the state as a checkpoint holds it, with all rows."""
        if tree.is_empty(run.table):
            return run
        ids = np.arange(self.num_clients, dtype=np.int32)
        return run._replace(table=Rows(ids, run.table, np.int32(self.num_clients)))

    def template(self, run, leaves):
        """Returns a state of the shapes that a checkpoint's leaves must have; `run` is a fresh one."""
        return _template(run, leaves, self.num_clients)

    def restored(self, found, run):
        """Returns a state read from a checkpoint with its table on the device; `run` is a fresh one."""
        if tree.is_empty(run.table):
            return found
        _check_total(found.table, self.num_clients)
        table = jax.tree.map(lambda leaf: np.array(leaf, copy=True), run.table)
        _write(table, found.table.ids, found.table.rows)
        return found._replace(table=table)


class HostRows:
    """All clients' rows in host memory, set on first use.

    A dispatch sees a small table with one row per client that it draws, so a client drawn twice within a dispatch sees
    its fresh row.

    Args:
      algorithm: its client_init makes the rows.
      params: the initial model.
      num_clients: K.
      slots: rows of the small table.
      init_key: draws the rows.
      place: (table of host arrays, state) -> table on the devices.
    """

    def __init__(
        self, algorithm: Algorithm, params, num_clients: int, slots: int, init_key, place=lambda table, run: table
    ):
        self.algorithm, self.num_clients, self.slots, self.init_key = algorithm, num_clients, slots, init_key
        self.place = place
        self.params = jax.tree.map(jnp.copy, params)
        # np.zeros maps pages on first touch: rows of clients that never take part cost nothing.
        row = row_shapes(algorithm, params)
        self.rows = jax.tree.map(lambda s: np.zeros((num_clients, *s.shape), s.dtype), row)
        self.filled = np.zeros(num_clients, bool)
        self._lent = np.zeros(0, np.int64)

    def take(self, run, ids: np.ndarray):
        """Returns the state with the rows of these clients, and every client's row of its table."""
        self._lent = distinct(ids)
        table = self.place(self._gather(self._lent), run)
        return run._replace(table=table), places(ids, self._lent, self.slots)

    def give(self, run) -> None:
        """Writes the rows back after a dispatch."""
        _write(self.rows, self._lent, jax.tree.map(lambda leaf: np.array(leaf)[: len(self._lent)], run.table))

    def _gather(self, clients: np.ndarray):
        """The rows of these clients, padded to the slots, as host arrays."""
        new = clients[~self.filled[clients]]
        for start in range(0, len(new), self.slots):
            some = new[start : start + self.slots]
            padded = np.resize(some, self.slots).astype(np.int32)
            fresh = init_rows(self.algorithm, self.params, padded, self.init_key)
            _write(self.rows, some, jax.tree.map(lambda rows: np.asarray(rows)[: len(some)], fresh))
        self.filled[new] = True
        picked = np.resize(clients, self.slots) if len(clients) else np.zeros(self.slots, int)
        return jax.tree.map(lambda everyone: everyone[picked], self.rows)

    def saved(self, run):
        """Returns the state as a checkpoint holds it, with the rows of the clients that have taken part."""
        ids = np.flatnonzero(self.filled).astype(np.int32)
        rows = jax.tree.map(lambda everyone: everyone[ids], self.rows)
        return run._replace(table=Rows(ids, rows, np.int32(self.num_clients)))

    def template(self, run, leaves):
        """Returns a state of the shapes that a checkpoint's leaves must have; `run` is a fresh one."""
        return _template(run, leaves, self.num_clients)

    def restored(self, found, run):
        """Takes the rows of a state read from a checkpoint and returns it with a table like that of the fresh `run`."""
        _check_total(found.table, self.num_clients)
        self.filled[found.table.ids] = True
        _write(self.rows, found.table.ids, found.table.rows)
        return found._replace(table=run.table)


def on_host(algorithm: Algorithm, params, num_clients: int, choice: str) -> bool:
    """Whether rows live on the host.

    Args:
      algorithm: whose rows.
      params: the model; shapes suffice.
      num_clients: K.
      choice: 'host', 'device', or 'auto': where the table is larger than HOST_TABLE_BYTES.
    """
    size = tree.nbytes(row_shapes(algorithm, params))
    return size > 0 and (choice == "host" or (choice == "auto" and size * num_clients > HOST_TABLE_BYTES))
