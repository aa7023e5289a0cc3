"""Offloaded windows: ring buffers in host memory or in a file; the device holds the vectors of a dispatch."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedwin import multi_process, window
from fedwin.core import Cohort
from fedwin.errors import UserError
from fedwin.residence.blockwise import Lazy
from fedwin.residence.client_table import ClientTable
from fedwin.residence.file_store import FileStore, Snapshot
from fedwin.residence.prefetch import Prefetcher
from fedwin.residence.record_store import Field, RecordLayout, RecordStore
from fedwin.window import PartialRing, is_window

# Vectors that are copied at a time from one store to another.
COPY_BATCH = 16


class OffloadedWindows:
    """A client table, and the ring buffers that are offloaded.

    Implements `ClientTable`: every method does for the ring buffers what it does for the table.

    Args:
      table: the client table.
      run: a fresh state, whose offloaded ring buffers are PartialRings.
      store: (name, PartialRing) -> record store of its vectors; None where process 0 owns them.
      place: (values, shardings or None) -> values on the devices, those of process 0.
      placement: state -> shardings of its leaves, or None.
    """

    def __init__(self, table: ClientTable, run, store: Callable, place: Callable, placement: Callable):
        self.table, self.place, self.placement = table, place, placement
        partial = {name: node.ring for name, node in windows_of(run).items() if isinstance(node.ring, PartialRing)}
        self.rings = {name: make_ring(name, ring, store(name, ring)) for name, ring in partial.items()}
        self._count = 0

    @property
    def slots(self) -> int:
        """Rows of the client table in the state."""
        return self.table.slots

    @property
    def num_clients(self) -> int:
        """K."""
        return self.table.num_clients

    def load(self, run, cohort: Cohort, rounds: int):
        """Returns the state with what a dispatch of these clients needs, and every client's row of its table."""
        run, slots = self.table.load(run, cohort, rounds)
        if not self.rings:
            return run, slots
        self._count, before = rounds, {name: node.ring for name, node in windows_of(run).items()}

        def loaded(name, node):
            return self.rings[name].load(int(node.count), self._count) if name in self.rings else node.ring

        run = with_rings(run, loaded)
        placement = self.placement(run)
        shardings = {} if placement is None else {name: node.ring for name, node in windows_of(placement).items()}

        def on_devices(name, node):
            if name not in self.rings:
                return node.ring
            ring = self.place(node.ring, shardings.get(name))
            self.rings[name].reuse(node.ring.earlier, ring.earlier)
            sharding = shardings[name].earlier if name in shardings else None
            entered = self.rings[name].entered_buffer(before[name].entered, sharding)
            return dataclasses.replace(ring, entered=entered)

        return with_rings(run, on_devices), slots

    def prefetch(self, cohort: Cohort, rounds: int) -> None:
        """Starts to read what the next dispatch needs."""
        self.table.prefetch(cohort, rounds)
        for ring in self.rings.values():
            ring.prefetch(self._count, rounds)

    def write_back(self, run) -> None:
        """Starts to write what a dispatch changed."""
        self.table.write_back(run)
        for name, node in windows_of(run).items():
            if name in self.rings:
                self.rings[name].write_back(node)

    def checkpoint(self, run):
        """Returns the state as a checkpoint holds it."""
        committed = {name: ring.commit(int(run.round)) for name, ring in self.rings.items()}
        return self.table.checkpoint(with_rings(run, lambda name, node: committed.get(name, node.ring)))

    def checkpoint_form(self, run):
        """Returns a fresh state as a checkpoint holds it."""
        return self.table.checkpoint_form(without_vectors(run))

    def template(self, run, leaves):
        """Returns a state of the shapes that a checkpoint's leaves must have; `run` is a fresh one."""
        return self.table.template(without_vectors(run), leaves)

    def restore(self, saved, run):
        """Stores rows and vectors of a state read from a checkpoint; `run` is a fresh one. See ClientTable."""
        fresh = {name: node.ring for name, node in windows_of(run).items()}

        def ring(name, node):
            if name in self.rings:
                self.rings[name].restore(node.ring, int(node.count))
                return fresh[name]
            return node.ring

        return self.table.restore(with_rings(saved, ring), run)

    def reclaim(self) -> None:
        """Makes the space of rows and vectors available that only removed checkpoints needed."""
        self.table.reclaim()
        for ring in self.rings.values():
            ring.reclaim()

    def close(self) -> None:
        """Stops threads and closes files."""
        for ring in self.rings.values():
            ring.close()
        self.table.close()


def client_table_of(table: ClientTable) -> ClientTable:
    """Returns the client table without offloaded windows."""
    return table.table if isinstance(table, OffloadedWindows) else table


class RemoteRing:
    """Placeholder for a ring buffer that process 0 owns; base class of OffloadedRing.

    Args:
      name: of the window, for errors.
      like: the ring buffer in a fresh state.
    """

    def __init__(self, name: str, like: PartialRing):
        self.name, self.slots, self.ages, self.rounds = name, like.slots, like.ages, like.rounds
        self.room, self.size = like.earlier.shape
        empty = lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)
        self.like = dataclasses.replace(like, entered=empty(like.entered), earlier=empty(like.earlier))
        # Two buffers for vectors that are pushed: one is written back while the next dispatch fills the other.
        self._spare: Any = None
        self._written: Any = None
        self._base = 0

    def prefetch(self, count: int, following: int) -> None:
        """Starts to read for the dispatch of `following` pushes that comes after the present one of `count`."""

    def load(self, base: int, count: int) -> PartialRing:
        """Returns what a dispatch needs, as host arrays; `entered` is to come from `entered_buffer`.

        Args:
          base: number of vectors pushed before it.
          count: upper bound on the number of its pushes.
        """
        self._base = base
        numbers = window.vectors_leaving(base, count, self.ages)
        leaving = window.leaving_indices(base, numbers, self.like)
        earlier = self._read(numbers, count)
        return dataclasses.replace(self.like, entered=(), earlier=earlier, base=np.int32(base), leaving=leaving)

    def entered_buffer(self, entered, sharding) -> Any:
        """Returns an array on the devices that a dispatch may fill with its vectors; its values do not matter.

        Args:
          entered: that of the last dispatch.
          sharding: of a new array; None = the default device.
        """
        if entered is not self._written:
            return entered
        spare, self._spare = self._spare, None
        return jnp.zeros(entered.shape, entered.dtype, device=sharding) if spare is None else spare

    def reuse(self, earlier: np.ndarray, on_devices: jax.Array) -> None:
        """Takes back an array of `load`'s that was copied to the devices."""

    def write_back(self, node) -> None:
        """Starts to write the vectors that a dispatch pushed to a Window or Delay.

        Raises:
          UserError: there were more than rounds.
        """
        pushed = int(node.count) - self._base
        if pushed > self.rounds:
            raise UserError(
                f"the window '{self.name}' is pushed to more than once a round; keep it on the device, --window=device."
            )
        entered = node.ring.entered
        # A view on a CPU, a separate array object: `entered` would remember the view, and not be donated.
        view = jax.default_backend() == "cpu" and entered.is_fully_replicated
        vectors = entered.addressable_data(0) if view else multi_process.all_gather(entered)
        self._write(np.asarray(vectors)[:pushed])
        self._spare, self._written = self._written, entered

    def commit(self, round: int) -> Any:
        """Ends a snapshot of the vectors; returns what a checkpoint holds of the ring buffer."""
        return ()

    def restore(self, source, count: int) -> None:
        """Stores the vectors of a checkpoint's ring buffer, to which `count` vectors were pushed."""

    def reclaim(self) -> None:
        """Makes the space of vectors available that only removed checkpoints needed."""

    def close(self) -> None:
        """Stops threads and closes files."""

    def _read(self, numbers: np.ndarray, count: int) -> np.ndarray:
        """Returns the vectors of these numbers, followed by zeros, [H, P]; the dispatch pushes `count` vectors."""
        return np.zeros((self.room, self.size), self.like.dtype)

    def _write(self, vectors: np.ndarray) -> None:
        """Starts to write the vectors that a dispatch pushed, [n, P]."""


class OffloadedRing(RemoteRing):
    """A ring buffer in a record store of this process.

    Args:
      name: of the window, for errors.
      like: the ring buffer in a fresh state.
      store: of the vectors, numbered by slot.
    """

    def __init__(self, name: str, like: PartialRing, store: RecordStore):
        super().__init__(name, like)
        self.store = store
        self._prefetcher = Prefetcher(store, ring_layout(self.size, like.dtype), self.room)

    def _slots_of(self, first: int, count: int) -> np.ndarray:
        return (first + np.arange(count)) % self.slots

    def prefetch(self, count: int, following: int) -> None:
        """Starts to read for the dispatch of `following` pushes that comes after the present one of `count`."""
        self._prefetcher.prefetch(window.vectors_leaving(self._base + count, following, self.ages) % self.slots)

    def restore(self, source, count: int) -> None:
        """Stores the vectors of a checkpoint's ring buffer.

        Args:
          source: [slots, P], an array or a SnapshotRing.
          count: number of vectors that were pushed to it.
        """
        if isinstance(self.store, FileStore):
            snapshot = source.snapshot if isinstance(source, SnapshotRing) else None
            if snapshot is not None and self.store.owns(snapshot) and snapshot.manifest.total == self.slots:
                return self.store.resume(snapshot)
            self.store.clear()
        stored = min(count, self.slots)
        copy_vectors(source, self._slots_of(count - stored, stored), self.store)

    def reuse(self, earlier: np.ndarray, on_devices: jax.Array) -> None:
        """Takes back an array of `load`'s that was copied to the devices."""
        start = earlier.ctypes.data
        pieces = jax.block_until_ready(on_devices).addressable_shards
        # A CPU device may use the array itself.
        if not any(start <= piece.data.unsafe_buffer_pointer() < start + earlier.nbytes for piece in pieces):
            self._prefetcher.reuse([earlier])

    def commit(self, round: int) -> Any:
        """Ends a snapshot of the vectors; returns what a checkpoint holds of the ring buffer."""
        return self._prefetcher.commit(round)

    def reclaim(self) -> None:
        """Makes the space of vectors available that only removed checkpoints needed."""
        self._prefetcher.reclaim()

    def close(self) -> None:
        """Stops the thread and closes the store."""
        self._prefetcher.close()

    def _read(self, numbers: np.ndarray, count: int) -> np.ndarray:
        return self._prefetcher.load(numbers % self.slots, self._slots_of(self._base, count))[0][0]

    def _write(self, vectors: np.ndarray) -> None:
        # A dispatch may go round a short ring buffer several times: the last vectors stay.
        lost = max(len(vectors) - self.slots, 0)
        self._prefetcher.write_back(self._slots_of(self._base + lost, len(vectors) - lost), [vectors[lost:]])


def make_ring(name: str, like: PartialRing, store: RecordStore | None) -> RemoteRing:
    """Returns an OffloadedRing, or a RemoteRing where the store is None; arguments as theirs."""
    return RemoteRing(name, like) if store is None else OffloadedRing(name, like, store)


def ring_layout(size: int, dtype) -> RecordLayout:
    """Returns the layout of a record that is one vector [P]."""
    return RecordLayout((Field("", (size,), np.dtype(dtype).name),))


def copy_vectors(source: Any, slots: np.ndarray, store: RecordStore) -> None:
    """Copies vectors of a ring buffer into a record store.

    Args:
      source: [slots, P], an array or a SnapshotRing.
      slots: which of them.
      store: written to.
    """
    for start in range(0, len(slots), COPY_BATCH):
        some = slots[start : start + COPY_BATCH]
        store.write(some, [np.asarray(source[some])])


class SnapshotRing(Lazy):
    """A ring buffer [slots, P] of a checkpoint, read from a file on access.

    Args:
      shape: [slots, P].
      dtype: of a vector.
      snapshot: that it is read from; None: no vector was pushed yet.
    """

    def __init__(self, shape: tuple[int, int], dtype, snapshot: Snapshot | None = None):
        self.shape, self.dtype, self.snapshot = shape, np.dtype(dtype), snapshot

    def with_length(self, slots: int) -> "SnapshotRing":
        """Returns the same vectors in a ring buffer of another length."""
        return SnapshotRing((slots, self.shape[1]), self.dtype, self.snapshot)

    def _rows(self, start: int, stop: int) -> np.ndarray:
        rows = np.zeros((stop - start, self.shape[1]), self.dtype)
        if self.snapshot is not None:
            places = np.flatnonzero((self.snapshot.ids >= start) & (self.snapshot.ids < stop))
            rows[self.snapshot.ids[places] - start] = self.snapshot.read(places)[0]
        return rows


def windows_of(run) -> dict[str, Any]:
    """Returns name in checkpoints -> Window or Delay, of all that a state holds."""
    parts = {"observers": run.observers, "state": run.state}
    nodes = jax.tree_util.tree_leaves_with_path(parts, is_leaf=is_window)
    name = lambda path: jax.tree_util.keystr(path, simple=True, separator=".")
    return {name(path): node for path, node in nodes if is_window(node)}


def with_rings(run, ring_of: Callable[[str, Any], Any]):
    """Returns a state with other ring buffers: (name, Window or Delay) -> ring buffer."""
    changed = iter([node._replace(ring=ring_of(name, node)) for name, node in windows_of(run).items()])
    parts = {"observers": run.observers, "state": run.state}
    parts = jax.tree.map(lambda node: next(changed) if is_window(node) else node, parts, is_leaf=is_window)
    return run._replace(observers=parts["observers"], state=parts["state"])


def offloaded_rounds(run) -> int | None:
    """Returns R of the PartialRings in a state; None where no ring buffer is offloaded."""
    return next((node.ring.rounds for node in windows_of(run).values() if isinstance(node.ring, PartialRing)), None)


def without_vectors(run):
    """Returns a state with SnapshotRings without vectors, as checkpoints have ring buffers, for PartialRings."""

    def ring(name, node):
        return SnapshotRing(node.ring.shape, node.ring.dtype) if isinstance(node.ring, PartialRing) else node.ring

    return with_rings(run, ring)


def traceable(run):
    """Returns a state that can be traced but not trained, for one with SnapshotRings.

    The vectors are read where weighted means need them; elsewhere, PartialRings without vectors take their place.
    """

    def ring(name, node):
        if not isinstance(node.ring, SnapshotRing):
            return node.ring
        slots, size = node.ring.shape
        if isinstance(node, window.Window) and node.weighted:
            return np.asarray(node.ring)
        count = len(node.sums) if isinstance(node, window.Window) else 1
        zeros, leaving = np.zeros((1, size), node.ring.dtype), np.zeros((count, 1), np.int32)
        return PartialRing(zeros, zeros, np.asarray(node.count), leaving, (slots - 1,) * count, slots)

    return with_rings(run, ring)
