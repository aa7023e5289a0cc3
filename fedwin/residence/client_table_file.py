"""The client table in a file: reads the rows of the next dispatch while one trains, and writes them back in order."""

from typing import Any

import jax
import numpy as np

from fedwin import multi_process
from fedwin.core import Cohort
from fedwin.residence.client_table import (
    InitialRows,
    SavedTable,
    check_num_clients,
    distinct_clients,
    slots_of,
    table_template,
)
from fedwin.residence.file_store import FileStore, Snapshot, SnapshotLeaf
from fedwin.residence.prefetch import Prefetcher
from fedwin.residence.record_store import row_layout


class FileTable:
    """Rows of the clients that have taken part, in a file; memory holds those of two dispatches.

    Args:
      store: the file.
      initial: makes initial rows.
      num_clients: K.
      slots: rows of the small table.
      place: (table of host arrays, state) -> table on the devices.
    """

    def __init__(
        self, store: FileStore, initial: InitialRows, num_clients: int, slots: int, place=lambda table, run: table
    ):
        self.store, self.initial, self.num_clients = store, initial, num_clients
        self.slots, self.place = slots, place
        self.layout = row_layout(initial.shapes)
        self._prefetcher = Prefetcher(store, self.layout, slots)
        self._loaded = np.zeros(0, np.int64)

    def _tree(self, fields: list[np.ndarray]):
        return jax.tree.unflatten(jax.tree.structure(self.initial.shapes), fields)

    def prefetch(self, cohort: Cohort, rounds: int) -> None:
        """Starts to read the rows of the next dispatch's clients, except those that the present one changes."""
        self._prefetcher.prefetch(distinct_clients(cohort))

    def load(self, run, cohort: Cohort, rounds: int):
        """Returns the state with the rows of these clients, and every client's row of its table."""
        self._loaded = clients = distinct_clients(cohort)
        rows, stored = self._prefetcher.load(clients, clients)
        new = np.flatnonzero(~stored)
        self.initial.write(clients[new], rows, new)
        for leaf in rows:  # padding reads the last slot
            leaf[len(clients) :][-1:] = leaf[:1]
        return run._replace(table=self.place(self._tree(rows), run)), slots_of(cohort, clients, self.slots)

    def write_back(self, run) -> None:
        """Starts to write the rows after a dispatch."""
        # Views: this table is not donated, `load` puts another in its place.
        table = jax.tree.leaves(multi_process.all_gather(run.table))
        self._prefetcher.write_back(self._loaded, [np.asarray(leaf)[: len(self._loaded)] for leaf in table])

    def checkpoint(self, run):
        """Ends a snapshot of the rows; returns the state with its manifest in place of the table."""
        return run._replace(table=self._prefetcher.commit(int(run.round)))

    def checkpoint_form(self, run):
        """Returns a fresh state with a SavedTable that has no rows yet."""
        empty = self._tree(self.layout.blank(0))
        return run._replace(table=SavedTable(np.zeros(0, np.int32), empty, np.int32(self.num_clients)))

    def template(self, run, leaves):
        """Returns a state of the shapes that a checkpoint's leaves must have; `run` is a fresh one."""
        return table_template(run, leaves)

    def restore(self, saved, run):
        """Resumes from the rows of a state read from a checkpoint; returns it with a table like that of `run`."""
        table: Any = saved.table
        check_num_clients(table, self.num_clients)
        snapshot = snapshot_of(table.rows)
        if snapshot is not None and self.store.owns(snapshot):
            self.store.resume(snapshot)
            return saved._replace(table=run.table)
        self.store.clear()
        for start in range(0, len(table.ids), self.slots):
            numbers = np.arange(start, min(start + self.slots, len(table.ids)))
            self.store.write(np.asarray(table.ids)[numbers], read_rows(table.rows, numbers))
        return saved._replace(table=run.table)

    def reclaim(self) -> None:
        """Makes the space of rows available that only removed checkpoints needed."""
        self._prefetcher.reclaim()

    def close(self) -> None:
        """Stops the thread and closes the file."""
        self._prefetcher.close()


def snapshot_of(rows) -> Snapshot | None:
    """Returns the snapshot whose leaves, all of them and in order, a tree of rows consists of; None for other trees."""
    leaves = jax.tree.leaves(rows)
    if not leaves or not all(isinstance(leaf, SnapshotLeaf) for leaf in leaves):
        return None
    snapshot = leaves[0].snapshot
    same = all(leaf.snapshot is snapshot and leaf.number == n for n, leaf in enumerate(leaves))
    return snapshot if same and len(leaves) == len(snapshot.layout.fields) else None


def read_rows(rows, numbers: np.ndarray) -> list[np.ndarray]:
    """Returns some rows of a tree of arrays or SnapshotLeafs, [n, ...] per leaf; reads every record once."""
    leaves = jax.tree.leaves(rows)
    if leaves and all(isinstance(leaf, SnapshotLeaf) for leaf in leaves):
        fields = leaves[0].snapshot.read(numbers)
        return [fields[leaf.number] for leaf in leaves]
    return [leaf[numbers] for leaf in leaves]


def saved_or_initial_rows(table: SavedTable, ids: np.ndarray, initial: InitialRows):
    """Returns stored rows, or initial rows for clients that the checkpoint does not contain, tree of [n, ...].

    Args:
      table: of the checkpoint.
      ids: clients [n].
      initial: makes initial rows.
    """
    stored = np.isin(ids, table.ids)
    leaves = jax.tree.leaves(initial(ids))
    numbers = np.searchsorted(table.ids, ids[stored])
    for leaf, some in zip(leaves, read_rows(table.rows, numbers), strict=True):
        leaf[stored] = some
    return jax.tree.unflatten(jax.tree.structure(table.rows), leaves)
