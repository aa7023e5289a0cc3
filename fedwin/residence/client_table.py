"""Client tables: where the rows of clients' states are stored, in device memory, host memory or by another process.

A `ClientTable` stores one row per client, in full or for the clients that have taken part. The state of a run holds the
rows that one dispatch needs (`RunState.table`), which `load` puts there and `write_back` takes from there. The table in
a file is in `fedwin.residence.client_table_file`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from fedwin import multi_process, tree
from fedwin.core import Algorithm, Cohort
from fedwin.errors import UserError
from fedwin.residence.blockwise import Picked, copy_rows, set_rows

# A client table above this many bytes goes to the host unless --table says otherwise.
HOST_TABLE_BYTES = 4 << 30
# Rows of all who take part go into a file where they would take more than this share of the main memory.
HOST_SHARE = 0.5


class ClientTable(Protocol):
    """Storage of clients' rows, and of windows where these are offloaded (`OffloadedWindows`).

    `run` is an engine.RunState throughout.

    Attributes:
      num_clients: K.
      slots: rows of the table in the state.
    """

    @property
    def num_clients(self) -> int: ...

    @property
    def slots(self) -> int: ...

    def load(self, run: Any, cohort: Cohort, rounds: int) -> tuple[Any, np.ndarray]:
        """Puts the rows of a dispatch's clients into the state.

        Args:
          run: the state before the dispatch.
          cohort: the clients, arrays [R, C]; their slots are not read.
          rounds: of the dispatch, at most R.

        Returns:
          (state, every client's row of its table, int32 [R, C]; padding is beyond the end).
        """

    def prefetch(self, cohort: Cohort, rounds: int) -> None:
        """Starts to read the rows of the next dispatch's clients; to be called after `load`, while that one trains."""

    def write_back(self, run: Any) -> None:
        """Stores the rows that a dispatch changed, perhaps in the background."""

    def checkpoint(self, run: Any) -> Any:
        """Returns the state as a checkpoint holds it: with a SavedTable, or the manifest of one in a file."""

    def checkpoint_form(self, run: Any) -> Any:
        """Returns a fresh state with a SavedTable."""

    def template(self, run: Any, leaves: dict[str, Any]) -> Any:
        """Returns a state of the shapes that a checkpoint's leaves must have; `run` is a fresh one."""

    def restore(self, saved: Any, run: Any) -> Any:
        """Stores the rows of a checkpoint.

        Args:
          saved: the state that was read, with a SavedTable.
          run: a fresh state. `DeviceTable` needs no rows in it if the checkpoint has everyone's, and donates them
            otherwise.

        Returns:
          The saved state with a table like that of a fresh one.

        Raises:
          UserError: the checkpoint is of another number of clients.
        """

    def reclaim(self) -> None:
        """Makes the space of rows available that only removed checkpoints needed."""

    def close(self) -> None:
        """Stops threads and closes files."""


class SavedTable(NamedTuple):
    """A client table as a checkpoint holds it.

    Attributes:
      ids: clients whose rows are stored, ascending, int32 [n].
      rows: tree of [n, ...].
      total: K.
    """

    ids: Any
    rows: Any
    total: Any


class _TableInMemory:
    """What tables without files and threads have in common."""

    num_clients: int

    def prefetch(self, cohort: Cohort, rounds: int) -> None:
        """Does nothing."""

    def checkpoint(self, run):
        """Returns the state as a checkpoint holds it."""
        return self.checkpoint_form(run)

    def checkpoint_form(self, run):
        """Returns the state as a checkpoint holds it."""
        raise NotImplementedError

    def template(self, run, leaves):
        """Returns a state of the shapes that a checkpoint's leaves must have; `run` is a fresh one."""
        return table_template(run, leaves)

    def reclaim(self) -> None:
        """Does nothing."""

    def close(self) -> None:
        """Does nothing."""


class DeviceTable(_TableInMemory):
    """Rows that stay on the device: the state's table has one for every client.

    Args:
      num_clients: K.
    """

    def __init__(self, num_clients: int):
        self.num_clients = self.slots = num_clients

    def load(self, run, cohort: Cohort, rounds: int):
        """Returns the state as it is, and every client's row of its table."""
        return run, np.where(cohort.present, cohort.ids, self.num_clients).astype(np.int32)

    def write_back(self, run) -> None:
        """Does nothing."""

    def checkpoint_form(self, run):
        """Returns the state as a checkpoint holds it, with all rows."""
        if tree.is_empty(run.table):
            return run
        ids = np.arange(self.num_clients, dtype=np.int32)
        return run._replace(table=SavedTable(ids, run.table, np.int32(self.num_clients)))

    def restore(self, saved, run):
        """Returns a state read from a checkpoint with everyone's rows in its table; see ClientTable."""
        if tree.is_empty(run.table):
            return saved
        check_num_clients(saved.table, self.num_clients)
        ids = np.asarray(saved.table.ids)
        if len(ids) == self.num_clients:
            return saved._replace(table=saved.table.rows)
        table = jax.tree.map(lambda leaf, rows: set_rows(leaf, ids, rows), run.table, saved.table.rows)
        return saved._replace(table=table)


class HostTable(_TableInMemory):
    """All clients' rows in host memory, initialized on first use.

    A dispatch sees a small table with one row per client that it draws, so a client drawn twice within a dispatch sees
    its updated row.

    Args:
      algorithm: its client_init makes the rows.
      params: the initial model.
      num_clients: K.
      slots: rows of the small table.
      init_key: key of random initial rows.
      place: (table of host arrays, state) -> table on the devices.
    """

    def __init__(
        self, algorithm: Algorithm, params, num_clients: int, slots: int, init_key, place=lambda table, run: table
    ):
        self.num_clients, self.slots, self.place = num_clients, slots, place
        self.initial = InitialRows(algorithm, params, init_key, slots)
        # np.zeros maps pages on first touch: rows of clients that never take part cost nothing.
        self.rows = jax.tree.map(lambda s: np.zeros((num_clients, *s.shape), s.dtype), self.initial.shapes)
        self.initialized = np.zeros(num_clients, bool)
        self._loaded = np.zeros(0, np.int64)

    def load(self, run, cohort: Cohort, rounds: int):
        """Returns the state with the rows of these clients, and every client's row of its table."""
        self._loaded = distinct_clients(cohort)
        table = self.place(self._gather(self._loaded), run)
        return run._replace(table=table), slots_of(cohort, self._loaded, self.slots)

    def write_back(self, run) -> None:
        """Stores the rows after a dispatch."""
        table = multi_process.all_gather(run.table)
        rows = jax.tree.map(lambda leaf: np.array(leaf)[: len(self._loaded)], table)
        write_rows(self.rows, self._loaded, rows)

    def _gather(self, clients: np.ndarray):
        """Returns the rows of these clients, padded to the slots, as host arrays."""
        new = clients[~self.initialized[clients]]
        self.initial.write(new, self.rows, new)
        self.initialized[new] = True
        picked = np.resize(clients, self.slots) if len(clients) else np.zeros(self.slots, int)
        return jax.tree.map(lambda everyone: everyone[picked], self.rows)

    def checkpoint_form(self, run):
        """Returns the state as a checkpoint holds it, with the rows of the clients that have taken part."""
        ids = np.flatnonzero(self.initialized).astype(np.int32)
        rows = jax.tree.map(lambda everyone: Picked(everyone, ids), self.rows)
        return run._replace(table=SavedTable(ids, rows, np.int32(self.num_clients)))

    def restore(self, saved, run):
        """Stores the rows of a state read from a checkpoint; see ClientTable."""
        check_num_clients(saved.table, self.num_clients)
        self.initialized[saved.table.ids] = True
        write_rows(self.rows, saved.table.ids, saved.table.rows)
        return saved._replace(table=run.table)


class RemoteTable(_TableInMemory):
    """Placeholder for a table that process 0 owns: takes part in exchanges, and stores and saves nothing.

    Args:
      shapes: of one row.
      num_clients: K.
      slots: rows of the small table.
      place: (table of host arrays, state) -> table on the devices; replaces the values by those of process 0.
    """

    def __init__(self, shapes, num_clients: int, slots: int, place: Callable):
        self.num_clients, self.slots, self.place = num_clients, slots, place
        self._blank = jax.tree.map(lambda leaf: np.zeros((slots, *leaf.shape), leaf.dtype), shapes)

    def load(self, run, cohort: Cohort, rounds: int):
        """Returns the state with the rows of these clients, and every client's row of its table."""
        slots = slots_of(cohort, distinct_clients(cohort), self.slots)
        return run._replace(table=self.place(self._blank, run)), slots

    def write_back(self, run) -> None:
        """Takes part in gathering rows that are split over processes."""
        multi_process.all_gather(run.table)

    def checkpoint_form(self, run):
        """Returns the state as it is: process 0 saves it."""
        return run

    def restore(self, saved, run):
        """Returns the state as it is: process 0 restores it."""
        return saved


def table_kind(algorithm: Algorithm, params, num_clients: int, choice: str, room: tuple[int, int | None]) -> str:
    """Returns which kind of table a run has: 'device', 'host' or 'file'.

    Args:
      algorithm: its client_init makes the rows.
      params: the model; shapes suffice.
      num_clients: K.
      choice: one of these, or 'auto': the host where the table is larger than HOST_TABLE_BYTES, a file where the rows
        of those who take part would fill the host's memory.
      room: (upper bound on the number of clients that take part, bytes of main memory or None).
    """
    size = tree.nbytes(row_shapes(algorithm, params))
    if not size:
        return "device"
    if choice != "auto":
        return choice
    if size * num_clients <= HOST_TABLE_BYTES:
        return "device"
    participants, memory = room
    return "file" if memory is not None and size * participants > HOST_SHARE * memory else "host"


def init_rows(algorithm: Algorithm, params, ids, init_key, shardings=None):
    """Returns the initial rows of clients, tree of [n, ...], in separate buffers.

    Args:
      algorithm: its client_init makes them.
      params: the initial model.
      ids: the clients, int32 [n].
      init_key: key of random initial rows.
      shardings: of the leaves; None = one device.
    """

    def stacked(params, ids, key):
        # A copy, because jit may return one and the same buffer for outputs that are equal.
        return jax.tree.map(jnp.copy, jax.vmap(algorithm.client_init, (None, 0, None))(params, ids, key))

    return jax.jit(stacked, out_shardings=shardings)(params, ids, init_key)


def row_shapes(algorithm: Algorithm, params):
    """Returns the shapes and dtypes of one client's row."""
    return jax.eval_shape(algorithm.client_init, params, jax.ShapeDtypeStruct((), jnp.int32), jax.random.key(0))


def write_rows(table, ids, rows) -> None:
    """Writes rows [n, ...] into places `ids` of host arrays [K, ...], in place."""
    for everyone, some in zip(jax.tree.leaves(table), jax.tree.leaves(rows), strict=True):
        copy_rows(everyone, ids, some)


class InitialRows:
    """Makes initial rows as host arrays, a fixed number at a time, so that they are compiled once.

    Args:
      algorithm: its client_init makes them.
      params: the initial model.
      init_key: key of random initial rows.
      batch: how many are made at a time.

    Attributes:
      shapes: of one row.
    """

    def __init__(self, algorithm: Algorithm, params, init_key, batch: int):
        self.shapes = row_shapes(algorithm, params)
        self.params, self.init_key, self.batch = jax.tree.map(jnp.copy, params), init_key, batch
        self._make = jax.jit(jax.vmap(algorithm.client_init, (None, 0, None)))

    def write(self, clients: np.ndarray, table, places: np.ndarray) -> None:
        """Writes the initial rows of clients [m] into places [m] of arrays [n, ...]."""
        for start in range(0, len(clients), self.batch):
            some = clients[start : start + self.batch]
            made = self._make(self.params, np.resize(some, self.batch).astype(np.int32), self.init_key)
            made = jax.tree.map(lambda leaf: np.asarray(leaf)[: len(some)], made)
            write_rows(table, places[start : start + len(some)], made)

    def __call__(self, clients: np.ndarray):
        """Returns the initial rows of clients, tree of [n, ...]."""
        table = jax.tree.map(lambda leaf: np.zeros((len(clients), *leaf.shape), leaf.dtype), self.shapes)
        self.write(clients, table, np.arange(len(clients)))
        return table


def distinct_clients(cohort: Cohort) -> np.ndarray:
    """Returns the distinct clients of cohorts, ascending."""
    return np.unique(cohort.ids[cohort.present])


def slots_of(cohort: Cohort, loaded: np.ndarray, padding: int) -> np.ndarray:
    """Returns the place of every client among the loaded ones, int32 [..., C].

    Args:
      cohort: clients.
      loaded: distinct clients, ascending, all of the cohort's among them.
      padding: the place of padding.
    """
    return np.where(cohort.present, np.searchsorted(loaded, cohort.ids), padding).astype(np.int32)


def table_template(run, leaves: dict[str, Any]):
    """Returns a state like `run` whose table has the shapes of the SavedTable that a checkpoint's leaves hold."""
    if tree.is_empty(run.table):
        return run
    stored = len(leaves.get("table.ids", ()))
    rows = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((stored, *leaf.shape[1:]), leaf.dtype), run.table)
    spec = jax.ShapeDtypeStruct
    return run._replace(table=SavedTable(spec((stored,), np.int32), rows, spec((), np.int32)))


def has_all_clients(leaves: dict[str, Any], num_clients: int) -> bool:
    """Whether a checkpoint's leaves have a row of each of K clients."""
    return len(leaves.get("table.ids", ())) == num_clients


def check_num_clients(saved: SavedTable, num_clients: int) -> None:
    """Raises UserError unless a checkpoint is one of a federation of K clients."""
    if saved.total != num_clients:
        raise UserError(f"the checkpoint holds the state of {saved.total} clients, the run has {num_clients}.")
