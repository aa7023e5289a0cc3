"""Clients' rows in a file: those of the next dispatch are read while one trains, and written back in order."""

import concurrent.futures
from typing import Any

import jax
import numpy as np

from fedwin import hosts
from fedwin.residence.addresses import distinct, places
from fedwin.residence.first_rows import FirstRows
from fedwin.residence.generations import FiledLeaf, Generation, layout_of
from fedwin.residence.rows import Rows, check_total, rows_template


def generation_of(rows) -> Generation | None:
    """Returns the generation that a tree of rows is read from, whole and in its order; None for other trees."""
    leaves = jax.tree.leaves(rows)
    if not leaves or not all(isinstance(leaf, FiledLeaf) for leaf in leaves):
        return None
    one = leaves[0].generation
    same = all(leaf.generation is one and leaf.number == n for n, leaf in enumerate(leaves))
    return one if same and len(leaves) == len(one.layout.fields) else None


def read_rows(rows, numbers: np.ndarray) -> list[np.ndarray]:
    """Returns some rows of a tree of arrays or of what is read on access, [n, ...] per leaf."""
    leaves = jax.tree.leaves(rows)
    if leaves and all(isinstance(leaf, FiledLeaf) for leaf in leaves):
        found = leaves[0].generation.read(numbers)
        return [found[leaf.number] for leaf in leaves]
    return [leaf[numbers] for leaf in leaves]


def rows_of(table: Rows, ids: np.ndarray, first: FirstRows):
    """Returns the rows of some clients, [n, ...], of what a checkpoint holds; of others, those that they begin with."""
    known = np.isin(ids, table.ids)
    found = jax.tree.leaves(first(ids))
    numbers = np.searchsorted(table.ids, ids[known])
    for leaf, some in zip(found, read_rows(table.rows, numbers), strict=True):
        leaf[known] = some
    return jax.tree.unflatten(jax.tree.structure(table.rows), found)


class FileRows:
    """Rows of the clients that have taken part, in a file; memory holds those of two dispatches.

    Only one thread touches the file, so rows are written and read in the order in which that was asked for.

    Args:
      store: the file (runs.row_file.RowFile).
      first: makes the rows that clients begin with.
      num_clients: K.
      slots: rows of the small table.
      place: (table of host arrays, state) -> table on the devices.
    """

    def __init__(self, store, first: FirstRows, num_clients: int, slots: int, place=lambda table, run: table):
        self.store, self.first, self.num_clients, self.slots, self.place = store, first, num_clients, slots, place
        self.layout = layout_of(first.shapes)
        self._thread = concurrent.futures.ThreadPoolExecutor(1)
        self._expected: tuple[bytes, concurrent.futures.Future] | None = None
        self._written: concurrent.futures.Future | None = None
        self._lent = np.zeros(0, np.int64)
        # Rows that came back last, and may be on their way into the file.
        self._back: list[np.ndarray] = self.layout.blank(0)

    def expect(self, ids: np.ndarray) -> None:
        """Starts to read the rows of a dispatch's clients, except those that the present one changes."""
        self._expected = ids.tobytes(), self._thread.submit(self._read, distinct(ids), self._lent)

    def take(self, run, ids: np.ndarray):
        """Returns the state with the rows of these clients, and every client's row of its table."""
        clients, expected = distinct(ids), self._expected
        if expected is None or expected[0] != ids.tobytes():
            self.expect(ids)
            expected = self._expected
        assert expected is not None
        rows, read = expected[1].result()
        self._expected = None
        again = np.isin(clients, self._lent) & ~read
        for leaf, back in zip(rows, self._back, strict=True):
            leaf[: len(clients)][again] = back[np.searchsorted(self._lent, clients[again])]
        new = np.flatnonzero(~read & ~again)
        self.first.into(clients[new], rows, new)
        for leaf in rows:  # padding reads the last slot
            leaf[len(clients) :][-1:] = leaf[:1]
        self._lent, self._back = clients, self.layout.blank(0)
        table = jax.tree.unflatten(jax.tree.structure(self.first.shapes), rows)
        return run._replace(table=self.place(table, run)), places(ids, clients, self.slots)

    def _read(self, clients: np.ndarray, changing: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
        """Reads what the file has of these clients' rows; returns arrays [slots, ...], and whose rows are in them."""
        rows = self.layout.blank(self.slots)
        read = self.store.known(clients) & ~np.isin(clients, changing)
        self.store.read(clients[read], rows, np.flatnonzero(read))
        return rows, read

    def give(self, run) -> None:
        """Starts to write the rows back after a dispatch."""
        self._finish()
        # Views: this table is not donated, `take` puts another in its place.
        self._back = [np.asarray(leaf)[: len(self._lent)] for leaf in jax.tree.leaves(hosts.whole(run.table))]
        self._written = self._thread.submit(self.store.write, self._lent, self._back)

    def _finish(self) -> None:
        """Waits until rows that came back are written; raises what went wrong."""
        if self._written is not None:
            self._written.result()
            self._written = None

    def checkpointed(self, run):
        """Ends a generation of rows; returns the state with what names it in place of its table."""
        self._finish()
        return run._replace(table=self._thread.submit(self.store.commit, int(run.round)).result())

    def keep(self) -> None:
        """Gives room to new rows that only checkpoints needed which are gone."""
        self._thread.submit(self.store.keep).result()

    def saved(self, run):
        """Returns a fresh state in the form of a checkpoint that holds rows: it has none yet."""
        empty = jax.tree.unflatten(jax.tree.structure(self.first.shapes), self.layout.blank(0))
        return run._replace(table=Rows(np.zeros(0, np.int32), empty, np.int32(self.num_clients)))

    def template(self, run, leaves):
        """Returns a state of the shapes that a checkpoint's leaves must have; `run` is a fresh one."""
        return rows_template(run, leaves)

    def restored(self, found, run):
        """Goes on from the rows of a state read from a checkpoint; returns it with a table like that of `run`."""
        saved: Any = found.table
        check_total(saved, self.num_clients)
        generation = generation_of(saved.rows)
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
        self._thread.shutdown(cancel_futures=True)
        self.store.close()
