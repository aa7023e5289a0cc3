"""Clients' rows in a file: those of the next dispatch are read while one trains, and written back in order."""

from typing import Any

import jax
import numpy as np

from fedwin import multi_process
from fedwin.residence.client_table import (
    InitialRows,
    SavedTable,
    check_num_clients,
    distinct_clients,
    slots_of,
    table_template,
)
from fedwin.residence.prefetch import Prefetcher
from fedwin.residence.record_store import Snapshot, SnapshotLeaf, row_layout


def snapshot_of(rows) -> Snapshot | None:
    """Returns the generation that a tree of rows is read from, whole and in its order; None for other trees."""
    leaves = jax.tree.leaves(rows)
    if not leaves or not all(isinstance(leaf, SnapshotLeaf) for leaf in leaves):
        return None
    one = leaves[0].generation
    same = all(leaf.generation is one and leaf.number == n for n, leaf in enumerate(leaves))
    return one if same and len(leaves) == len(one.layout.fields) else None


def read_rows(rows, numbers: np.ndarray) -> list[np.ndarray]:
    """Returns some rows of a tree of arrays or of what is read on access, [n, ...] per leaf."""
    leaves = jax.tree.leaves(rows)
    if leaves and all(isinstance(leaf, SnapshotLeaf) for leaf in leaves):
        found = leaves[0].generation.read(numbers)
        return [found[leaf.number] for leaf in leaves]
    return [leaf[numbers] for leaf in leaves]


def saved_or_initial_rows(table: SavedTable, ids: np.ndarray, first: InitialRows):
    """Returns the rows of some clients, [n, ...], of what a checkpoint holds; of others, those that they begin with."""
    known = np.isin(ids, table.ids)
    found = jax.tree.leaves(first(ids))
    numbers = np.searchsorted(table.ids, ids[known])
    for leaf, some in zip(found, read_rows(table.rows, numbers), strict=True):
        leaf[known] = some
    return jax.tree.unflatten(jax.tree.structure(table.rows), found)


class FileTable:
    """Rows of the clients that have taken part, in a file; memory holds those of two dispatches.

    Args:
      store: the file (runs.row_file.RowFile).
      first: makes the rows that clients begin with.
      num_clients: K.
      slots: rows of the small table.
      place: (table of host arrays, state) -> table on the devices.
    """

    def __init__(self, store, first: InitialRows, num_clients: int, slots: int, place=lambda table, run: table):
        self.store, self.first, self.num_clients, self.slots, self.place = store, first, num_clients, slots, place
        self.layout = row_layout(first.shapes)
        self._lender = Prefetcher(store, self.layout, slots)
        self._lent = np.zeros(0, np.int64)

    def expect(self, ids: np.ndarray) -> None:
        """Starts to read the rows of a dispatch's clients, except those that the present one changes."""
        self._lender.expect(distinct_clients(ids))

    def take(self, run, ids: np.ndarray):
        """Returns the state with the rows of these clients, and every client's row of its table."""
        self._lent = clients = distinct_clients(ids)
        rows, known = self._lender.take(clients, clients)
        new = np.flatnonzero(~known)
        self.first.into(clients[new], rows, new)
        for leaf in rows:  # padding reads the last slot
            leaf[len(clients) :][-1:] = leaf[:1]
        table = jax.tree.unflatten(jax.tree.structure(self.first.shapes), rows)
        return run._replace(table=self.place(table, run)), slots_of(ids, clients, self.slots)

    def give(self, run) -> None:
        """Starts to write the rows back after a dispatch."""
        # Views: this table is not donated, `take` puts another in its place.
        table = jax.tree.leaves(multi_process.all_gather(run.table))
        self._lender.give(self._lent, [np.asarray(leaf)[: len(self._lent)] for leaf in table])

    def checkpointed(self, run):
        """Ends a generation of rows; returns the state with what names it in place of its table."""
        return run._replace(table=self._lender.commit(int(run.round)))

    def keep(self) -> None:
        """Gives room to new rows that only checkpoints needed which are gone."""
        self._lender.keep()

    def saved(self, run):
        """Returns a fresh state in the form of a checkpoint that holds rows: it has none yet."""
        empty = jax.tree.unflatten(jax.tree.structure(self.first.shapes), self.layout.blank(0))
        return run._replace(table=SavedTable(np.zeros(0, np.int32), empty, np.int32(self.num_clients)))

    def template(self, run, leaves):
        """Returns a state of the shapes that a checkpoint's leaves must have; `run` is a fresh one."""
        return table_template(run, leaves)

    def restored(self, found, run):
        """Goes on from the rows of a state read from a checkpoint; returns it with a table like that of `run`."""
        saved: Any = found.table
        check_num_clients(saved, self.num_clients)
        generation = snapshot_of(saved.rows)
        if generation is not None and self.store.owns(generation):
            self.store.begin_with(generation)
            return found._replace(table=run.table)
        self.store.begin_anew()
        for start in range(0, len(saved.ids), self.slots):
            numbers = np.arange(start, min(start + self.slots, len(saved.ids)))
            self.store.write(np.asarray(saved.ids)[numbers], read_rows(saved.rows, numbers))
        return found._replace(table=run.table)

    def close(self) -> None:
        """Stops the thread and closes the file."""
        self._lender.close()
