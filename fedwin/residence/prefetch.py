"""Records that a dispatch borrows from a store: read ahead while another one trains, and written back in order."""

import concurrent.futures
from typing import Any

import numpy as np

from fedwin.residence.record_store import Layout


class Prefetcher:
    """Lends the records of a store (runs.row_file.RowFile, residence.ring_store.RingMemory) to one dispatch at a time.

    Only one thread touches the store, so records are written and read in the order in which that was asked for.

    Args:
      store: known(numbers), read(numbers, records, places), write(numbers, records), commit(round), keep(), close().
      layout: of a record.
      room: records that a dispatch has room for.
      first: where those that are read begin in it.
    """

    def __init__(self, store, layout: Layout, room: int, first: int = 0):
        self.store, self.layout, self.room, self.first = store, layout, room, first
        self._thread = concurrent.futures.ThreadPoolExecutor(1)
        self._expected: tuple[bytes, concurrent.futures.Future] | None = None
        self._written: concurrent.futures.Future | None = None
        # Records that the present dispatch changes.
        self._changing = np.zeros(0, np.int64)
        # Records that came back last, and may be on their way into the store.
        self._returned: tuple[np.ndarray, list[np.ndarray]] = self._changing, layout.blank(0)
        self._unused: list[np.ndarray] | None = None

    def expect(self, numbers: np.ndarray) -> None:
        """Starts to read the records of the next dispatch, except those that the present one changes."""
        records, self._unused = self._unused or self.layout.blank(self.room), None
        self._expected = numbers.tobytes(), self._thread.submit(self._read, numbers, self._changing, records)

    def take(self, numbers: np.ndarray, changing: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
        """Returns arrays [room, ...] with the records that are in the store, and which of `numbers` these are.

        Args:
          numbers: distinct records.
          changing: those that the dispatch changes.
        """
        if self._expected is None or self._expected[0] != numbers.tobytes():
            self.expect(numbers)
        assert self._expected is not None
        records, there, skipped = self._expected[1].result()
        self._expected = None
        returned, back = self._returned
        again = np.flatnonzero(skipped & np.isin(numbers, returned))
        order = np.argsort(returned)
        found = order[np.searchsorted(returned, numbers[again], sorter=order)]
        for leaf, some in zip(records, back, strict=True):
            leaf[self.first + again] = some[found]
        skipped[again], there[again] = False, True
        if skipped.any():  # thought to be changing, but it was not
            late = np.flatnonzero(skipped)
            there[late] = self._thread.submit(self._into, numbers[late], records, self.first + late).result()
        self._changing, self._returned = changing, (np.zeros(0, np.int64), self.layout.blank(0))
        return records, there

    def reuse(self, records: list[np.ndarray]) -> None:
        """Takes back arrays that `take` returned, to read into them again; new memory would cost as much as reading."""
        self._unused = records

    def give(self, numbers: np.ndarray, records: list[np.ndarray]) -> None:
        """Starts to write records [n, ...] after a dispatch."""
        self.finish()
        self._returned = numbers, records
        self._written = self._thread.submit(self.store.write, numbers, records)

    def finish(self) -> None:
        """Waits until records that came back are written; raises what went wrong."""
        if self._written is not None:
            self._written.result()
            self._written = None

    def commit(self, round: int) -> Any:
        """Ends a generation of records; returns what names it."""
        self.finish()
        return self._thread.submit(self.store.commit, round).result()

    def keep(self) -> None:
        """Gives room to new records that only checkpoints needed which are gone."""
        self._thread.submit(self.store.keep).result()

    def close(self) -> None:
        """Stops the thread and closes the store."""
        self._thread.shutdown(cancel_futures=True)
        self.store.close()

    def _read(self, numbers: np.ndarray, changing: np.ndarray, records: list[np.ndarray]):
        """Reads what the store has of these records; returns (arrays [room, ...], which it has, which were skipped)."""
        skipped = np.isin(numbers, changing)
        there, others = np.zeros(len(numbers), bool), np.flatnonzero(~skipped)
        there[others] = self._into(numbers[others], records, self.first + others)
        return records, there, skipped

    def _into(self, numbers: np.ndarray, records: list[np.ndarray], places: np.ndarray) -> np.ndarray:
        known = self.store.known(numbers)
        self.store.read(numbers[known], records, places[known])
        return known
