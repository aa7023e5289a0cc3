"""Where a ring of vectors is that is not on the device: in host memory, or in a file that checkpoints name."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedwin import multi_process, window
from fedwin import window as rings
from fedwin.errors import UserError
from fedwin.residence.blockwise import Lazy
from fedwin.residence.prefetch import Prefetcher
from fedwin.residence.record_store import Field, Layout, Snapshot

# Vectors that are copied at a time from one place to another.
TOGETHER = 16


def ring_layout(size: int, dtype) -> Layout:
    """Returns the layout of a record that is one vector [P]."""
    return Layout((Field("", (size,), np.dtype(dtype).name),))


class HostStore:
    """Vectors in host memory, all in one array.

    Args:
      slots: of the ring.
      size: length P of a vector.
      dtype: of it.

    Attributes:
      ring: [slots, P].
    """

    def __init__(self, slots: int, size: int, dtype):
        # Pages are mapped on first touch: slots that no vector reaches cost nothing.
        self.ring = np.zeros((slots, size), dtype)

    def known(self, numbers: np.ndarray) -> np.ndarray:
        """Returns which vectors are here: all."""
        return np.ones(len(numbers), bool)

    def read(self, numbers: np.ndarray, records: list[np.ndarray], places: np.ndarray) -> None:
        """Reads vectors into given places."""
        for number, place in zip(numbers, places, strict=True):
            records[0][place] = self.ring[number]

    def write(self, numbers: np.ndarray, records: list[np.ndarray]) -> None:
        """Writes vectors [n, P]."""
        for number, vector in zip(numbers, records[0], strict=True):
            self.ring[number] = vector

    def commit(self, round: int) -> np.ndarray:
        """Returns what a checkpoint holds of the ring: all of it."""
        return self.ring

    def keep(self) -> None:
        """Nothing is kept for checkpoints."""

    def close(self) -> None:
        """Nothing has to be closed."""


class SnapshotRing(Lazy):
    """A ring [slots, P] that is read on access.

    Args:
      shape: [slots, P].
      dtype: of a vector.
      generation: what it is read from; None: no vector was pushed yet.
    """

    def __init__(self, shape: tuple[int, int], dtype, generation: Snapshot | None = None):
        self.shape, self.dtype, self.generation = shape, np.dtype(dtype), generation

    def of_length(self, slots: int) -> "FiledRing":
        """Returns the same vectors in a ring of another length."""
        return SnapshotRing((slots, self.shape[1]), self.dtype, self.generation)

    def _rows(self, start: int, stop: int) -> np.ndarray:
        found = np.zeros((stop - start, self.shape[1]), self.dtype)
        if self.generation is not None:
            places = np.flatnonzero((self.generation.ids >= start) & (self.generation.ids < stop))
            found[self.generation.ids[places] - start] = self.generation.read(places)[0]
        return found


def copied(source: Any, numbers: np.ndarray, store) -> None:
    """Copies vectors of a ring, an array or a FiledRing, into a store.

    Args:
      source: [slots, P].
      numbers: slots.
      store: written to.
    """
    for begin in range(0, len(numbers), TOGETHER):
        some = numbers[begin : begin + TOGETHER]
        store.write(some, [np.asarray(source[some])])


class RemoteRing:
    """A ring that another process has, which hands out what every dispatch needs.

    Args:
      name: of the window.
      like: the ring as the run begins with it.
    """

    def __init__(self, name: str, like: rings.PartialRing):
        self.name, self.slots, self.ages, self.rounds = name, like.slots, like.ages, like.rounds
        self.room, self.size = like.held.shape
        empty = lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)
        self.like = dataclasses.replace(like, entered=empty(like.entered), held=empty(like.held))
        # What was pushed in the last dispatch is still being written, while the next one fills the other.
        self._spare: Any = None
        self._written: Any = None
        self._base = 0

    def expect(self, count: int, following: int) -> None:
        """Starts to read for the dispatch of `following` pushes that comes after the present one of `count`."""

    def take(self, base: int, count: int) -> rings.PartialRing:
        """Returns what a dispatch of at most `count` pushes needs, as host arrays; `entered` comes from `room_for`."""
        self._base = base
        held = rings.vectors_leaving(base, count, self.ages)
        leaving = rings.leaving_indices(base, held, self.like)
        return dataclasses.replace(
            self.like, entered=(), held=self._vectors(held, count), base=np.int32(base), leaving=leaving
        )

    def room_for(self, entered, sharding) -> Any:
        """Returns an array on the devices that takes what is pushed; what is in it does not matter.

        Args:
          entered: that of the last dispatch.
          sharding: where a new one goes; None = the default device.
        """
        if entered is not self._written:
            return entered
        spare, self._spare = self._spare, None
        return jnp.zeros(entered.shape, entered.dtype, device=sharding) if spare is None else spare

    def placed(self, held: np.ndarray, on_devices: jax.Array) -> None:
        """Takes back an array of `take`'s that was copied to the devices."""

    def give(self, node) -> None:
        """Starts to write what was pushed.

        Raises:
          UserError: there was no room for it.
        """
        pushed = int(node.count) - self._base
        if pushed > self.rounds:
            raise UserError(
                f"the window '{self.name}' is pushed to more than once a round; keep it on the device, --window=device."
            )
        entered = node.ring.entered
        # A view on a CPU, of an array object of its own, which remembers it and then would not be donated.
        view = jax.default_backend() == "cpu" and entered.is_fully_replicated
        self._entered(np.asarray(entered.addressable_data(0) if view else multi_process.all_gather(entered))[:pushed])
        self._spare, self._written = self._written, entered

    def commit(self, round: int) -> Any:
        """Ends a generation of vectors; returns what a checkpoint holds of the ring."""
        return ()

    def keep(self) -> None:
        """Gives room to new vectors that only checkpoints needed which are gone."""

    def close(self) -> None:
        """Stops what runs beside the training."""

    def _vectors(self, held: np.ndarray, count: int) -> np.ndarray:
        return np.zeros((self.room, self.size), self.like.dtype)

    def _entered(self, vectors: np.ndarray) -> None:
        pass


class OffloadedRing(RemoteRing):
    """A ring in the main memory of this process, or in a file.

    Args:
      name: of the window.
      like: the ring as the run begins with it.
      store: where the vectors are.
    """

    def __init__(self, name: str, like: rings.PartialRing, store):
        super().__init__(name, like)
        self.store = store
        self._lender = Prefetcher(store, ring_layout(self.size, like.dtype), self.room)

    def _slots_of(self, first: int, count: int) -> np.ndarray:
        return (first + np.arange(count)) % self.slots

    def expect(self, count: int, following: int) -> None:
        """Starts to read for the dispatch of `following` pushes that comes after the present one of `count`."""
        self._lender.expect(rings.vectors_leaving(self._base + count, following, self.ages) % self.slots)

    def restored(self, source, count: int) -> None:
        """Goes on from the ring of a checkpoint, an array or a lazy one, to which `count` vectors were pushed."""
        if not isinstance(self.store, HostStore):
            generation = source.generation if isinstance(source, SnapshotRing) else None
            if generation is not None and self.store.owns(generation) and generation.mark.total == self.slots:
                return self.store.begin_with(generation)
            self.store.begin_anew()
        held = min(count, self.slots)
        copied(source, self._slots_of(count - held, held), self.store)

    def placed(self, held: np.ndarray, on_devices: jax.Array) -> None:
        """Takes back an array of `take`'s that was copied to the devices."""
        begin = held.ctypes.data
        pieces = jax.block_until_ready(on_devices).addressable_shards
        # A CPU device may use the array itself.
        if not any(begin <= piece.data.unsafe_buffer_pointer() < begin + held.nbytes for piece in pieces):
            self._lender.reuse([held])

    def commit(self, round: int) -> Any:
        """Ends a generation of vectors; returns what a checkpoint holds of the ring."""
        return self._lender.commit(round)

    def keep(self) -> None:
        """Gives room to new vectors that only checkpoints needed which are gone."""
        self._lender.keep()

    def close(self) -> None:
        """Stops what runs beside the training."""
        self._lender.close()

    def _vectors(self, held: np.ndarray, count: int) -> np.ndarray:
        return self._lender.take(held % self.slots, self._slots_of(self._base, count))[0][0]

    def _entered(self, vectors: np.ndarray) -> None:
        # A dispatch may go round a short ring several times.
        lost = max(len(vectors) - self.slots, 0)
        self._lender.give(self._slots_of(self._base + lost, len(vectors) - lost), [vectors[lost:]])


def outside_ring(name: str, like: rings.PartialRing, store) -> RemoteRing:
    """Returns the ring; `store` is None where another process has it."""
    return RemoteRing(name, like) if store is None else OffloadedRing(name, like, store)


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


def offloaded_rounds(run) -> int | None:
    """Returns the rounds of a dispatch that lent rings have room for; None where no ring is lent."""
    return next(
        (node.ring.rounds for node in windows_of(run).values() if isinstance(node.ring, rings.PartialRing)), None
    )


def without_vectors(run):
    """Returns a state whose lent rings are empty ones in the form of a checkpoint's, which hold no memory."""

    def ring(name, node):
        lent = isinstance(node.ring, rings.PartialRing)
        return SnapshotRing(node.ring.shape, node.ring.dtype) if lent else node.ring

    return with_rings(run, ring)


def traceable(run):
    """Returns a state that can be traced, but not trained: rings that are read on access hold nothing."""

    def ring(name, node):
        if not isinstance(node.ring, SnapshotRing):
            return node.ring
        slots, size = node.ring.shape
        count = len(node.sums) if isinstance(node, window.Window) else 1
        zeros, leaving = np.zeros((1, size), node.ring.dtype), np.zeros((count, 1), np.int32)
        return rings.PartialRing(zeros, zeros, np.asarray(node.count), leaving, (slots - 1,) * count, slots)

    return with_rings(run, ring)


class OffloadedWindows:
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
        lent = {name: node.ring for name, node in windows_of(run).items() if isinstance(node.ring, rings.PartialRing)}
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
        return self.rows.saved(without_vectors(run))

    def template(self, run, leaves):
        """Returns a state of the shapes that a checkpoint's leaves must have; `run` is a fresh one."""
        return self.rows.template(without_vectors(run), leaves)

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


def client_table_of(rows):
    """Returns the residence of clients' rows alone."""
    return rows.rows if isinstance(rows, OffloadedWindows) else rows


def _rounds_of(ids: np.ndarray) -> int:
    """The rounds of a dispatch; those that are not used have no client."""
    return int((ids >= 0).any(axis=-1).sum())
