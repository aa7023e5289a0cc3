"""Client tables: rows of clients' states on the device, or offloaded to main memory or to a file.

A `ClientTable` stores one row per client, in full or for the clients that have taken part. The state of a run holds the
rows that one dispatch needs (`RunState.table`), which `load` puts there and `write_back` takes from there.
"""

import functools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from fedwin import jax_config, multi_process, tree
from fedwin.core import Algorithm, Cohort
from fedwin.residence.blockwise import AnyArray, set_rows
from fedwin.residence.offload import Offload
from fedwin.residence.saved import SavedTable, check_num_clients
from fedwin.residence.store import Records, RecordStore, record_layout, snapshot_of
from fedwin.tree import PyTree

# (values, shardings or None) -> values on the devices, those of process 0.
Place = Callable[[PyTree, PyTree], PyTree]
# A client table above this many bytes goes to the host unless --table says otherwise.
HOST_TABLE_BYTES = 4 << 30
# Rows of all who take part go into a file where they would take more than this share of the main memory.
HOST_SHARE = 0.5


class ClientTable:
    """Storage of clients' rows, and of windows where these are offloaded (`rings.OffloadedWindows`).

    `run` is an engine.RunState throughout.

    Args:
      num_clients: K.
      slots: rows of the table in the state.
    """

    def __init__(self, num_clients: int, slots: int):
        self.num_clients, self.slots = num_clients, slots

    def load(self, run: PyTree, cohort: Cohort, rounds: int) -> tuple[PyTree, np.ndarray]:
        """Puts the rows of a dispatch's clients into the state.

        Args:
          run: the state before the dispatch.
          cohort: the clients, arrays [R, C]; their slots are not read.
          rounds: rounds of the dispatch, at most R.

        Returns:
          (state, every client's row of its table, int32 [R, C]; padding is beyond the end).
        """
        raise NotImplementedError

    def prefetch(self, cohort: Cohort, rounds: int) -> None:
        """Starts to read the rows of the next dispatch's clients; to be called after `load`, while that one trains."""

    def write_back(self, run: PyTree) -> None:
        """Stores the rows that a dispatch changed, perhaps in the background."""

    def checkpoint(self, run: PyTree) -> PyTree:
        """Returns the state as a checkpoint holds it: with a SavedTable, or the Reference of one in a file."""
        return self.checkpoint_form(run)

    def checkpoint_form(self, run: PyTree) -> PyTree:
        """Returns a fresh state with a SavedTable."""
        raise NotImplementedError

    def restore(self, saved: PyTree, run: PyTree) -> PyTree:
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
        raise NotImplementedError

    def reclaim(self) -> None:
        """Frees the space of rows that only removed checkpoints needed."""

    def close(self) -> None:
        """Stops threads and closes files."""


class DeviceTable(ClientTable):
    """Rows that stay on the device: the state's table has one for every client."""

    def __init__(self, num_clients: int):
        super().__init__(num_clients, num_clients)

    def load(self, run, cohort: Cohort, rounds: int):
        return run, np.where(cohort.present, cohort.ids, self.num_clients).astype(np.int32)

    def checkpoint_form(self, run):
        if tree.is_empty(run.table):
            return run
        ids = np.arange(self.num_clients, dtype=np.int32)
        return run._replace(table=SavedTable(ids, run.table, np.int32(self.num_clients)))

    def restore(self, saved, run):
        if tree.is_empty(run.table):
            return saved
        check_num_clients(saved.table, self.num_clients)
        ids = np.asarray(saved.table.ids)
        if len(ids) == self.num_clients:
            return saved._replace(table=saved.table.rows)
        table = jax.tree.map(lambda leaf, rows: set_rows(leaf, ids, rows), run.table, saved.table.rows)
        return saved._replace(table=table)


class OffloadedTable(ClientTable):
    """Rows of the clients that have taken part, in a record store; initial rows are made on first use.

    A dispatch sees a small table with one row per client that it draws, so a client drawn twice within a dispatch sees
    its updated row.

    Args:
      store: the record store, whose layout is that of a row.
      placement: state -> shardings of its leaves, or None.
    """

    def __init__(
        self,
        store: RecordStore,
        initial: "InitialRows",
        num_clients: int,
        slots: int,
        place: Place,
        placement: Callable[[PyTree], PyTree],
    ):
        super().__init__(num_clients, slots)
        self.initial, self.place, self.placement = initial, place, placement
        self._offload = Offload(store, slots)
        self._loaded = np.zeros(0, np.int64)

    def prefetch(self, cohort: Cohort, rounds: int) -> None:
        self._offload.prefetch(distinct_clients(cohort))

    def load(self, run, cohort: Cohort, rounds: int):
        self._loaded = clients = distinct_clients(cohort)
        rows, stored = self._offload.load(clients, clients)
        new = np.flatnonzero(~stored)
        self.initial.write(clients[new], rows, new)
        for leaf in rows:  # padding reads the last slot
            leaf[len(clients) :][-1:] = leaf[:1]
        placement = self.placement(run)
        table = self.place(self.initial.tree(rows), placement and placement.table)
        return run._replace(table=table), slots_of(cohort, clients, self.slots)

    def write_back(self, run) -> None:
        # Views: this table is not donated, `load` puts another in its place.
        table = jax.tree.leaves(multi_process.all_gather(run.table))
        self._offload.write_back(self._loaded, [np.asarray(leaf)[: len(self._loaded)] for leaf in table])

    def checkpoint(self, run):
        reference = self._offload.commit(int(run.round))
        return self.checkpoint_form(run) if reference is None else run._replace(table=reference)

    def checkpoint_form(self, run):
        ids, fields = self._offload.store.held()
        return run._replace(table=SavedTable(ids, self.initial.tree(fields), np.int32(self.num_clients)))

    def restore(self, saved, run):
        check_num_clients(saved.table, self.num_clients)
        rows, ids = saved.table.rows, np.asarray(saved.table.ids)
        self._offload.restore(snapshot_of(jax.tree.leaves(rows)), ids, lambda some: read_rows(rows, some))
        return saved._replace(table=run.table)

    def reclaim(self) -> None:
        self._offload.reclaim()

    def close(self) -> None:
        self._offload.close()


def table_kind(algorithm: Algorithm, params, num_clients: int, choice: str, room: tuple[int, int]) -> str:
    """Returns which kind of table a run has: 'device', 'host' or 'file'.

    Args:
      params: the model; shapes suffice.
      choice: one of these, or 'auto': the host where the table is larger than HOST_TABLE_BYTES, a file where the rows
        of those who take part would fill the host's memory.
      room: (upper bound on the number of clients that take part, bytes of main memory).
    """
    size = tree.nbytes(row_shapes(algorithm, params))
    if not size:
        return "device"
    if choice != "auto":
        return choice
    if size * num_clients <= HOST_TABLE_BYTES:
        return "device"
    participants, memory = room
    return "file" if size * participants > HOST_SHARE * memory else "host"


def init_rows(algorithm: Algorithm, params, ids, init_key, shardings=None) -> PyTree:
    """Returns the initial rows of clients [n], tree of [n, ...], in separate buffers."""
    options = jax_config.compiler_options()
    make = jax.jit(_stacked(algorithm.client_init), out_shardings=shardings, compiler_options=options)
    return make(params, ids, init_key)


@functools.lru_cache(1)
def _stacked(client_init: Callable) -> Callable:
    """Returns (params, ids [n], key) -> rows; one function, which jit compiles once for all seeds of a run."""
    # A copy, because jit may return one and the same buffer for outputs that are equal.
    return lambda *args: tree.copy(jax.vmap(client_init, (None, 0, None))(*args))


def row_shapes(algorithm: Algorithm, params) -> PyTree:
    """Returns the shapes and dtypes of one client's row."""
    return jax.eval_shape(algorithm.client_init, params, jax.ShapeDtypeStruct((), jnp.int32), jax.random.key(0))


class InitialRows:
    """Makes initial rows as host arrays, `batch` at a time, so that they are compiled once."""

    def __init__(self, algorithm: Algorithm, params, init_key, batch: int):
        self.shapes = row_shapes(algorithm, params)
        self.layout = record_layout(self.shapes)
        self.params, self.init_key, self.batch = jax.tree.map(jnp.copy, params), init_key, batch
        self._make = jax.jit(_stacked(algorithm.client_init), compiler_options=jax_config.compiler_options())

    def tree(self, fields: Sequence[AnyArray]) -> PyTree:
        """Returns arrays, one per leaf of a row, as a tree of rows."""
        return jax.tree.unflatten(jax.tree.structure(self.shapes), fields)

    def write(self, clients: np.ndarray, rows: Records, places: np.ndarray) -> None:
        """Writes the initial rows of clients [m] into places [m] of arrays [n, ...]."""
        for start in range(0, len(clients), self.batch):
            some = clients[start : start + self.batch]
            made = self._make(self.params, np.resize(some, self.batch).astype(np.int32), self.init_key)
            for leaf, values in zip(rows, jax.tree.leaves(made), strict=True):
                leaf[places[start : start + len(some)]] = np.asarray(values)[: len(some)]


def distinct_clients(cohort: Cohort) -> np.ndarray:
    """Returns the distinct clients of cohorts, ascending."""
    return np.unique(cohort.ids[cohort.present])


def slots_of(cohort: Cohort, loaded: np.ndarray, padding: int) -> np.ndarray:
    """Returns the place of every client among the loaded ones (distinct, ascending), int32 [..., C]."""
    return np.where(cohort.present, np.searchsorted(loaded, cohort.ids), padding).astype(np.int32)


def read_rows(rows: PyTree, places: np.ndarray | slice) -> Records:
    """Returns some rows of a tree of arrays or SnapshotLeafs, [n, ...] per leaf; reads every record once."""
    leaves = jax.tree.leaves(rows)
    snapshot = snapshot_of(leaves)
    return [np.asarray(leaf[places]) for leaf in leaves] if snapshot is None else snapshot.read(places)


def saved_or_initial_rows(table: SavedTable, ids: np.ndarray, initial: InitialRows) -> PyTree:
    """Returns stored rows, or initial rows for clients that the checkpoint does not contain, tree of [n, ...]."""
    stored, leaves = np.isin(ids, table.ids), initial.layout.blank(len(ids))
    initial.write(ids, leaves, np.arange(len(ids)))
    for leaf, some in zip(leaves, read_rows(table.rows, np.searchsorted(table.ids, ids[stored])), strict=True):
        leaf[stored] = some
    return jax.tree.unflatten(jax.tree.structure(table.rows), leaves)
