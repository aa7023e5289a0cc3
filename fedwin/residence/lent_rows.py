"""Clients' rows in a process that does not own them: the first process hands out those of every dispatch.

Rows in main memory or in a file are the first process's alone. Before a dispatch it sends the small table to all
others: slots x bytes of a row. After it every process has the new rows anyway, because they are exchanged inside each
round, so nothing is sent back.
"""

from collections.abc import Callable

import jax
import numpy as np

from fedwin import multi_process
from fedwin.residence.addresses import distinct, places


class LentRows:
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
        return run._replace(table=self.place(self._blank, run)), places(ids, distinct(ids), self.slots)

    def give(self, run) -> None:
        """Leaves them to their owner, and takes part where they have to be gathered."""
        multi_process.whole(run.table)

    def checkpointed(self, run):
        """Returns the state as it is: another process saves it."""
        return run

    def keep(self) -> None:
        """Nothing is kept here."""

    def close(self) -> None:
        """Nothing has to be stopped."""
