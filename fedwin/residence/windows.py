"""Rings of windows that are on the host or in a file: a dispatch gets the vectors that leave and returns those pushed.

`Outside` has the methods of a residence of clients' rows (see residence.rows) and adds what windows need to those.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from fedwin import ring_buffer as rings
from fedwin import window
from fedwin.residence.outside_ring import outside_ring
from fedwin.residence.ring_store import FiledRing


def _is_window(node) -> bool:
    return isinstance(node, (window.Window, window.Delay))


def windows_of(run) -> dict[str, Any]:
    """Returns name, as checkpoints have it -> Window or Delay, of all that a state holds."""
    parts = {"observers": run.observers, "state": run.state}
    found = jax.tree_util.tree_leaves_with_path(parts, is_leaf=_is_window)
    name = lambda path: jax.tree_util.keystr(path, simple=True, separator=".")
    return {name(path): node for path, node in found if _is_window(node)}


def with_rings(run, ring_of: Callable[[str, Any], Any]):
    """Returns a state with other rings: (name, window) -> ring."""
    changed = iter([node._replace(ring=ring_of(name, node)) for name, node in windows_of(run).items()])
    parts = {"observers": run.observers, "state": run.state}
    parts = jax.tree.map(lambda node: next(changed) if _is_window(node) else node, parts, is_leaf=_is_window)
    return run._replace(observers=parts["observers"], state=parts["state"])


def lent_rounds(run) -> int | None:
    """Returns the rounds of a dispatch that lent rings have room for; None where no ring is lent."""
    return next((node.ring.rounds for node in windows_of(run).values() if isinstance(node.ring, rings.Lent)), None)


def unfilled(run):
    """Returns a state whose lent rings are empty ones in the form of a checkpoint's, which hold no memory."""

    def ring(name, node):
        lent = isinstance(node.ring, rings.Lent)
        return FiledRing(node.ring.shape, node.ring.dtype) if lent else node.ring

    return with_rings(run, ring)


def blank(run):
    """Returns a state that can be traced, but not trained: rings that are read on access hold nothing."""

    def ring(name, node):
        if not isinstance(node.ring, FiledRing):
            return node.ring
        slots, size = node.ring.shape
        count = len(node.sums) if isinstance(node, window.Window) else 1
        zeros, leaving = np.zeros((1, size), node.ring.dtype), np.zeros((count, 1), np.int32)
        return rings.Lent(zeros, zeros, np.asarray(node.count), leaving, (slots - 1,) * count, slots)

    return with_rings(run, ring)


class Outside:
    """A residence of clients' rows, and of the rings that are not on the device.

    Args:
      rows: the residence of the rows.
      run: a fresh state.
      store: (name, ring) -> where the vectors of a lent ring are; None where another process has them.
      place: (values, shardings or None) -> values on the devices; of several processes the first one's.
      placement: state -> shardings of its leaves, or None.
    """

    def __init__(self, rows, run, store: Callable, place: Callable, placement: Callable):
        self.rows, self.place, self.placement = rows, place, placement
        lent = {name: node.ring for name, node in windows_of(run).items() if isinstance(node.ring, rings.Lent)}
        self.outside = {name: outside_ring(name, ring, store(name, ring)) for name, ring in lent.items()}
        self._count = 0

    @property
    def slots(self) -> int:
        """Rows of the client table in the state."""
        return self.rows.slots

    @property
    def num_clients(self) -> int:
        """K."""
        return self.rows.num_clients

    def take(self, run, ids: np.ndarray):
        """Returns the state with what a dispatch of these clients needs, and every client's row of its table."""
        run, slots = self.rows.take(run, ids)
        if not self.outside:
            return run, slots
        self._count, before = _rounds_of(ids), {name: node.ring for name, node in windows_of(run).items()}

        def taken(name, node):
            return self.outside[name].take(int(node.count), self._count) if name in self.outside else node.ring

        run = with_rings(run, taken)
        placed = self.placement(run)
        where = {} if placed is None else {name: node.ring for name, node in windows_of(placed).items()}

        def on_devices(name, node):
            if name not in self.outside:
                return node.ring
            ring = self.place(node.ring, where.get(name))
            self.outside[name].placed(node.ring.held, ring.held)
            sharding = where[name].held if name in where else None
            entered = self.outside[name].room_for(before[name].entered, sharding)
            return dataclasses.replace(ring, entered=entered)

        return with_rings(run, on_devices), slots

    def expect(self, ids: np.ndarray) -> None:
        """Starts to read what the next dispatch needs."""
        self.rows.expect(ids)
        for ring in self.outside.values():
            ring.expect(self._count, _rounds_of(ids))

    def give(self, run) -> None:
        """Takes back what a dispatch changed."""
        self.rows.give(run)
        for name, node in windows_of(run).items():
            if name in self.outside:
                self.outside[name].give(node)

    def checkpointed(self, run):
        """Returns the state as a checkpoint holds it."""
        ended = {name: ring.commit(int(run.round)) for name, ring in self.outside.items()}
        return self.rows.checkpointed(with_rings(run, lambda name, node: ended.get(name, node.ring)))

    def saved(self, run):
        """Returns a fresh state as a checkpoint holds it."""
        return self.rows.saved(unfilled(run))

    def template(self, run, leaves):
        """Returns a state of the shapes that a checkpoint's leaves must have; `run` is a fresh one."""
        return self.rows.template(unfilled(run), leaves)

    def restored(self, found, run):
        """Returns a state read from a checkpoint with its rows and rings where they belong; `run` is a fresh one."""
        begun = {name: node.ring for name, node in windows_of(run).items()}

        def ring(name, node):
            if name in self.outside:
                self.outside[name].restored(node.ring, int(node.count))
                return begun[name]
            return node.ring

        return self.rows.restored(with_rings(found, ring), run)

    def keep(self) -> None:
        """Gives room to new rows and vectors that only checkpoints needed which are gone."""
        self.rows.keep()
        for ring in self.outside.values():
            ring.keep()

    def close(self) -> None:
        """Stops what runs beside the training."""
        for ring in self.outside.values():
            ring.close()
        self.rows.close()


def table_of(rows):
    """Returns the residence of clients' rows alone."""
    return rows.rows if isinstance(rows, Outside) else rows


def _rounds_of(ids: np.ndarray) -> int:
    """The rounds of a dispatch; those that are not used have no client."""
    return int((ids >= 0).any(axis=-1).sum())
