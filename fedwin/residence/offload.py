"""Prefetches the records that a dispatch needs from a record store, and writes them back in the background."""

import concurrent.futures
from collections.abc import Callable

import numpy as np

from fedwin.residence.store import Records, RecordStore, Reference, Snapshot

# Records that are copied at a time from a checkpoint to a store.
COPIED = 64


class Offload:
    """Reads records for one dispatch while another one trains, and writes them back in order.

    Only one thread touches the store, so records are read and written in the order of the calls. A dispatch needs at
    most `room` records.
    """

    def __init__(self, store: RecordStore, room: int):
        self.store, self.layout, self.room = store, store.layout, room
        self._thread = concurrent.futures.ThreadPoolExecutor(1)
        self._prefetched: tuple[bytes, concurrent.futures.Future] | None = None
        self._written: concurrent.futures.Future | None = None
        # Records that the present dispatch changes.
        self._changing = np.zeros(0, np.int64)
        # Records that were written back last, and may be on their way into the store.
        self._returned: tuple[np.ndarray, Records] = self._changing, self.layout.blank(0)
        self._unused: Records | None = None

    def prefetch(self, numbers: np.ndarray) -> None:
        """Starts to read the records of the next dispatch, except those that the present one changes."""
        records, self._unused = self._unused or self.layout.blank(self.room), None
        self._prefetched = numbers.tobytes(), self._thread.submit(self._read, numbers, self._changing, records)

    def load(self, numbers: np.ndarray, changing: np.ndarray) -> tuple[Records, np.ndarray]:
        """Returns the records of a dispatch; waits for them.

        Args:
          numbers: distinct records [n].
          changing: those that the dispatch changes.

        Returns:
          (arrays [room, ...], one per field, with the records that the store has; which of `numbers` these are, bool
          [n]).
        """
        if self._prefetched is None or self._prefetched[0] != numbers.tobytes():
            self.prefetch(numbers)
        assert self._prefetched is not None
        records, stored, skipped = self._prefetched[1].result()
        self._prefetched = None
        returned, values = self._returned
        _, again, source = np.intersect1d(numbers, returned, return_indices=True)
        for leaf, some in zip(records, values, strict=True):
            leaf[again] = some[source]
        skipped[again], stored[again] = False, True
        if skipped.any():  # expected to change in the last dispatch, but did not
            late = np.flatnonzero(skipped)
            stored[late] = self._thread.submit(self._read_into, numbers[late], records, late).result()
        self._changing, self._returned = changing, (np.zeros(0, np.int64), self.layout.blank(0))
        return records, stored

    def reuse(self, records: Records) -> None:
        """Takes back arrays that `load` returned, to read into them again; new memory would cost as much as reading."""
        self._unused = records

    def write_back(self, numbers: np.ndarray, records: Records) -> None:
        """Writes records [n, ...] in the background; re-raises the previous write's error."""
        self._wait()
        self._returned = numbers, records
        self._written = self._thread.submit(self.store.write, numbers, records)

    def commit(self, round: int) -> Reference | None:
        """Ends a snapshot after all records are written; None if a checkpoint has to hold the records itself."""
        self._wait()
        return self._thread.submit(self.store.commit, round).result()

    def restore(self, snapshot: Snapshot | None, numbers: np.ndarray, read: Callable[[slice], Records]) -> None:
        """Resumes from a snapshot of the store, or copies the records of a checkpoint into it."""
        if self.store.resume(snapshot):
            return
        for start in range(0, len(numbers), COPIED):
            some = slice(start, start + COPIED)
            self.store.write(numbers[some], read(some))

    def reclaim(self) -> None:
        """Makes the space of records available that only removed checkpoints needed."""
        self._thread.submit(self.store.reclaim).result()

    def close(self) -> None:
        """Stops the thread and closes the store."""
        self._thread.shutdown(cancel_futures=True)
        self.store.close()

    def _wait(self) -> None:
        """Waits until records are written; re-raises the error of the write."""
        if self._written is not None:
            self._written.result()
            self._written = None

    def _read(self, numbers: np.ndarray, changing: np.ndarray, records: Records):
        """Reads records except those in `changing`; returns (records, which the store has, which were skipped)."""
        skipped = np.isin(numbers, changing)
        stored, others = np.zeros(len(numbers), bool), np.flatnonzero(~skipped)
        stored[others] = self._read_into(numbers[others], records, others)
        return records, stored, skipped

    def _read_into(self, numbers: np.ndarray, records: Records, places: np.ndarray) -> np.ndarray:
        stored = self.store.contains(numbers)
        self.store.read(numbers[stored], records, places[stored])
        return stored
