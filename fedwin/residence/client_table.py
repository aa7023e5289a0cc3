"""The rows that clients begin with."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedwin import multi_process, tree
from fedwin.core import Algorithm
from fedwin.errors import UserError
from fedwin.residence.blockwise import Picked, copy_rows, set_rows


def init_rows(algorithm: Algorithm, params, ids, init_key, shardings=None):
    """Returns the table rows of clients that have not taken part yet, stacked along axis 0, in buffers of their own.

    Args:
      algorithm: its client_init makes them.
      params: the initial model.
      ids: the clients, int32 [n].
      init_key: draws what is random in them.
      shardings: which device holds what of them; None = one device, all.
    """

    def stacked(params, ids, key):
        # A copy, because jit may return one and the same buffer for outputs that are equal.
        return jax.tree.map(jnp.copy, jax.vmap(algorithm.client_init, (None, 0, None))(params, ids, key))

    return jax.jit(stacked, out_shardings=shardings)(params, ids, init_key)


def row_shapes(algorithm: Algorithm, params):
    """Returns the shapes and dtypes of one client's row."""
    return jax.eval_shape(algorithm.client_init, params, jax.ShapeDtypeStruct((), jnp.int32), jax.random.key(0))


def write_rows(table, ids, rows) -> None:
    """Writes rows [n, ...] into arrays [K, ...] in place."""
    for everyone, some in zip(jax.tree.leaves(table), jax.tree.leaves(rows), strict=True):
        copy_rows(everyone, ids, some)


class InitialRows:
    """Makes the rows that clients begin with.

    Args:
      algorithm: its client_init makes them.
      params: the initial model.
      init_key: draws what is random in them.
      together: how many are made at a time.

    Attributes:
      shapes: of one row.
    """

    def __init__(self, algorithm: Algorithm, params, init_key, together: int):
        self.shapes = row_shapes(algorithm, params)
        self.params, self.init_key, self.together = jax.tree.map(jnp.copy, params), init_key, together
        self._make = jax.jit(jax.vmap(algorithm.client_init, (None, 0, None)))

    def into(self, clients: np.ndarray, table, places: np.ndarray) -> None:
        """Writes the first rows of clients into given places of arrays [n, ...]."""
        for start in range(0, len(clients), self.together):
            some = clients[start : start + self.together]
            made = self._make(self.params, np.resize(some, self.together).astype(np.int32), self.init_key)
            write_rows(
                table, places[start : start + len(some)], jax.tree.map(lambda leaf: np.asarray(leaf)[: len(some)], made)
            )

    def __call__(self, clients: np.ndarray):
        """Returns the first rows of clients, [n, ...]."""
        table = jax.tree.map(lambda leaf: np.zeros((len(clients), *leaf.shape), leaf.dtype), self.shapes)
        self.into(clients, table, np.arange(len(clients)))
        return table


def distinct_clients(ids: np.ndarray) -> np.ndarray:
    """Returns the distinct clients of `ids` (-1 = padding), ascending."""
    return np.unique(ids[ids >= 0])


def slots_of(ids: np.ndarray, held: np.ndarray, padding: int) -> np.ndarray:
    """Returns the place of every client among those that are held, int32 in the shape of `ids`.

    Args:
      ids: clients, -1 = padding.
      held: distinct clients, ascending, all of `ids` among them.
      padding: the place of padding.
    """
    return np.where(ids >= 0, np.searchsorted(held, np.maximum(ids, 0)), padding).astype(np.int32)


# A client table above this many bytes goes to the host unless --table says otherwise.
HOST_TABLE_BYTES = 4 << 30
# Rows of all who take part go into a file where they would take more than this share of the main memory.
HOST_SHARE = 0.5


class SavedTable(NamedTuple):
    """What a checkpoint holds of a client table, wherever that lives.

    Attributes:
      ids: clients whose rows are kept, int32 [n].
      rows: tree of [n, ...].
      total: K.
    """

    ids: Any
    rows: Any
    total: Any


def table_template(run, leaves):
    """Returns a state like `run` whose table has the shapes of the Rows that a checkpoint's leaves hold."""
    if tree.is_empty(run.table):
        return run
    taken = len(leaves.get("table.ids", ()))
    rows = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((taken, *leaf.shape[1:]), leaf.dtype), run.table)
    spec = jax.ShapeDtypeStruct
    return run._replace(table=SavedTable(spec((taken,), np.int32), rows, spec((), np.int32)))


def has_all_clients(leaves, num_clients: int) -> bool:
    """Whether a checkpoint's leaves have a row of each of K clients."""
    return len(leaves.get("table.ids", ())) == num_clients


def check_num_clients(saved: SavedTable, num_clients: int) -> None:
    """Raises UserError unless a checkpoint is one of a federation of K clients."""
    if saved.total != num_clients:
        raise UserError(f"the checkpoint holds the state of {saved.total} clients, the run has {num_clients}.")


class _InMemory:
    """What there is to do for rows that are in memory as a whole: nothing."""

    def expect(self, ids: np.ndarray) -> None:
        """Nothing has to be read ahead."""

    def checkpointed(self, run):
        """Returns the state as a checkpoint holds it."""
        return self.saved(run)

    def saved(self, run):
        """Returns the state as a checkpoint holds it."""
        raise NotImplementedError

    def keep(self) -> None:
        """Nothing is kept for checkpoints."""

    def close(self) -> None:
        """Nothing has to be stopped."""


class DeviceTable(_InMemory):
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
        return run._replace(table=SavedTable(ids, run.table, np.int32(self.num_clients)))

    def template(self, run, leaves):
        """Returns a state of the shapes that a checkpoint's leaves must have; `run` is a fresh one."""
        return table_template(run, leaves)

    def restored(self, found, run):
        """Returns a state read from a checkpoint with everyone's rows in its table.

        Args:
          found: the state.
          run: a fresh one; its table needs no rows if the checkpoint holds everyone's, and is donated otherwise.
        """
        if tree.is_empty(run.table):
            return found
        check_num_clients(found.table, self.num_clients)
        ids = np.asarray(found.table.ids)
        if len(ids) == self.num_clients:
            return found._replace(table=found.table.rows)
        table = jax.tree.map(lambda leaf, rows: set_rows(leaf, ids, rows), run.table, found.table.rows)
        return found._replace(table=table)


class HostTable(_InMemory):
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
        self.num_clients, self.slots, self.place = num_clients, slots, place
        self.first = InitialRows(algorithm, params, init_key, slots)
        # np.zeros maps pages on first touch: rows of clients that never take part cost nothing.
        self.rows = jax.tree.map(lambda s: np.zeros((num_clients, *s.shape), s.dtype), self.first.shapes)
        self.filled = np.zeros(num_clients, bool)
        self._lent = np.zeros(0, np.int64)

    def take(self, run, ids: np.ndarray):
        """Returns the state with the rows of these clients, and every client's row of its table."""
        self._lent = distinct_clients(ids)
        table = self.place(self._gather(self._lent), run)
        return run._replace(table=table), slots_of(ids, self._lent, self.slots)

    def give(self, run) -> None:
        """Writes the rows back after a dispatch."""
        write_rows(
            self.rows,
            self._lent,
            jax.tree.map(lambda leaf: np.array(leaf)[: len(self._lent)], multi_process.all_gather(run.table)),
        )

    def _gather(self, clients: np.ndarray):
        """The rows of these clients, padded to the slots, as host arrays."""
        new = clients[~self.filled[clients]]
        self.first.into(new, self.rows, new)
        self.filled[new] = True
        picked = np.resize(clients, self.slots) if len(clients) else np.zeros(self.slots, int)
        return jax.tree.map(lambda everyone: everyone[picked], self.rows)

    def saved(self, run):
        """Returns the state as a checkpoint holds it, with the rows of the clients that have taken part."""
        ids = np.flatnonzero(self.filled).astype(np.int32)
        rows = jax.tree.map(lambda everyone: Picked(everyone, ids), self.rows)
        return run._replace(table=SavedTable(ids, rows, np.int32(self.num_clients)))

    def template(self, run, leaves):
        """Returns a state of the shapes that a checkpoint's leaves must have; `run` is a fresh one."""
        return table_template(run, leaves)

    def restored(self, found, run):
        """Takes the rows of a state read from a checkpoint and returns it with a table like that of the fresh `run`."""
        check_num_clients(found.table, self.num_clients)
        self.filled[found.table.ids] = True
        write_rows(self.rows, found.table.ids, found.table.rows)
        return found._replace(table=run.table)


def table_kind(algorithm: Algorithm, params, num_clients: int, choice: str, room: tuple[int, int | None]) -> str:
    """Returns where rows live: 'device', 'host' or 'file'.

    Args:
      algorithm: whose rows.
      params: the model; shapes suffice.
      num_clients: K.
      choice: one of these, or 'auto': the host where the table is larger than HOST_TABLE_BYTES, a file where those who
        take part would leave the host no room.
      room: (the most clients that can take part, bytes of main memory or None).
    """
    size = tree.nbytes(row_shapes(algorithm, params))
    if not size:
        return "device"
    if choice != "auto":
        return choice
    if size * num_clients <= HOST_TABLE_BYTES:
        return "device"
    seen, memory = room
    return "file" if memory is not None and size * seen > HOST_SHARE * memory else "host"


class RemoteTable:
    """Rows that another process keeps.

    Args:
      shapes: of one row.
      slots: rows of the small table.
      place: (table of host arrays, state) -> table on the devices; receives the other process's on the way.
    """

    def __init__(self, shapes, slots: int, place: Callable):
        self.slots, self.place = slots, place
        self._blank = jax.tree.map(lambda leaf: np.zeros((slots, *leaf.shape), leaf.dtype), shapes)

    def expect(self, ids: np.ndarray) -> None:
        """Nothing is read here."""

    def take(self, run, ids: np.ndarray):
        """Returns the state with the rows of these clients, and every client's row of its table."""
        return run._replace(table=self.place(self._blank, run)), slots_of(ids, distinct_clients(ids), self.slots)

    def give(self, run) -> None:
        """Leaves them to their owner, and takes part where they have to be gathered."""
        multi_process.all_gather(run.table)

    def checkpointed(self, run):
        """Returns the state as it is: another process saves it."""
        return run

    def keep(self) -> None:
        """Nothing is kept here."""

    def close(self) -> None:
        """Nothing has to be stopped."""
