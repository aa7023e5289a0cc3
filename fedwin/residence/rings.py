"""Offloaded windows and old models: ring buffers in record stores; the device holds what a dispatch needs.

A ring buffer is a table whose clients are slot numbers: vector (or model) number n is the record n mod slots.
"""

import dataclasses
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np

from fedwin import multi_process, tree
from fedwin.core import Cohort
from fedwin.errors import UserError
from fedwin.residence.offload import Offload
from fedwin.residence.rows import ClientTable, Place
from fedwin.residence.saved import SnapshotRing
from fedwin.residence.store import MemoryStore, RecordLayout, Records, RecordStore, record_layout
from fedwin.tree import PyTree
from fedwin.window import Delay, PartialRing, Window, is_window
from fedwin.wrappers.asynchronous import OLD_MODELS, OldModels

# (name, layout of a vector, slots) -> record store.
Stores = Callable[[str, RecordLayout, int], RecordStore]


def max_earlier(rounds: int, ages: tuple[int, ...]) -> int:
    """Returns H: room for all vectors that a dispatch can read without their having entered in it, and for a zero."""
    before = 0 in ages  # a weighted mean is also read before the first push
    oldest = sorted({age + before for age in ages})
    return sum(min(age - younger, rounds + before) for younger, age in zip([0, *oldest], oldest)) + 1


def vectors_leaving(base: int, count: int, ages: tuple[int, ...]) -> np.ndarray:
    """Returns the numbers of the vectors pushed before a dispatch that are read in it, ascending, int64."""
    numbers = base + np.arange(-(0 in ages), count)[:, None] - np.asarray(ages)
    return np.unique(numbers[(numbers >= 0) & (numbers < base)])


def leaving_indices(base: int, earlier: np.ndarray, like: PartialRing) -> np.ndarray:
    """Returns `PartialRing.leaving` of a dispatch."""
    numbers = base + np.arange(-(0 in like.ages), like.rounds) - np.asarray(like.ages)[:, None]
    zero = like.rounds + like.earlier.shape[0] - 1
    stored = np.isin(numbers, earlier)
    index = like.rounds + np.searchsorted(earlier, numbers)
    return np.where(numbers >= base, numbers - base, np.where(stored, index, zero)).astype(np.int32)


def newest_vectors(like: PartialRing, node) -> PartialRing:
    """Returns a PartialRing with the newest vectors of a window's ring buffer, where its weighted means read them."""
    base = int(node.count)
    if not base or not getattr(node, "weighted", ()):
        return like
    numbers, earlier = vectors_leaving(base, 0, like.ages), np.zeros(like.earlier.shape, like.dtype)
    earlier[: len(numbers)] = np.asarray(node.ring[numbers % like.slots])
    leaving = leaving_indices(base, numbers, like)
    return dataclasses.replace(like, earlier=earlier, base=np.int32(base), leaving=leaving)


def allocate(state: PyTree, rounds: int | None = None) -> PyTree:
    """Returns a fresh state with room for its ring buffers on the device.

    Args:
      state: tree in which windows and delay lines are empty.
      rounds: R; ring buffers become PartialRings for dispatches of at most R rounds. None: they are on the device as a
        whole.

    Raises:
      UserError: a window that is to be offloaded is not empty.
    """

    def allocated(node):
        if isinstance(node, OldModels):
            return node.allocated(rounds)
        ages = node.ages
        if rounds is None or not ages:
            fresh = isinstance(node.ring, np.ndarray) and not node.count
            return node._replace(ring=jnp.zeros(node.ring.shape, node.ring.dtype)) if fresh else node
        if not isinstance(node.count, jax.core.Tracer) and node.count:
            raise UserError("a window is pushed to before the first round; keep it on the device, --window=device.")
        size, dtype = node.ring.shape[1], node.ring.dtype
        entered = jnp.zeros((rounds, size), dtype)
        earlier = jnp.zeros((max_earlier(rounds, ages), size), dtype)
        leaving = jnp.zeros((len(ages), (0 in ages) + rounds), jnp.int32)
        ring = PartialRing(entered, earlier, jnp.zeros((), jnp.int32), leaving, ages, node.ring.shape[0])
        return node._replace(ring=ring)

    return tree.map_nodes(allocated, state, Window, Delay, OldModels)


class OffloadedWindows(ClientTable):
    """A client table, and the ring buffers that are offloaded: every method serves both.

    Args:
      table: the client table.
      run: a fresh state, whose offloaded ring buffers are PartialRings.
      placement: state -> shardings of its leaves, or None.
    """

    def __init__(
        self, table: ClientTable, run: PyTree, store: Stores, place: Place, placement: Callable[[PyTree], PyTree]
    ):
        super().__init__(table.num_clients, table.slots)
        self.table, self.placement = table, placement
        self.rings: list[OffloadedRing | OffloadedModels] = [
            OffloadedRing(name, ring, store, place) for name, ring in partial_rings(run).items()
        ]
        if (old := old_models_of(run)) is not None:
            self.rings.append(OffloadedModels(old, store, place))
        self._count = 0

    def load(self, run, cohort: Cohort, rounds: int):
        run, slots = self.table.load(run, cohort, rounds)
        self._count, placement = rounds, self.placement(run)
        for ring in self.rings:
            run = ring.load(run, placement, cohort, rounds)
        return run, slots

    def prefetch(self, cohort: Cohort, rounds: int) -> None:
        self.table.prefetch(cohort, rounds)
        for ring in self.rings:
            ring.prefetch(self._count, cohort, rounds)

    def write_back(self, run) -> None:
        self.table.write_back(run)
        for ring in self.rings:
            ring.write_back(run)

    def checkpoint(self, run):
        for ring in self.rings:
            run = ring.checkpoint(run)
        return self.table.checkpoint(run)

    def checkpoint_form(self, run):
        return self.table.checkpoint_form(without_vectors(run))

    def restore(self, saved, run):
        for ring in self.rings:
            saved = ring.restore(saved, run)
        return self.table.restore(saved, run)

    def reclaim(self) -> None:
        self.table.reclaim()
        for ring in self.rings:
            ring.offload.reclaim()

    def close(self) -> None:
        for ring in self.rings:
            ring.offload.close()
        self.table.close()


class OffloadedRing:
    """A ring buffer in a record store; its methods change that of a state, or serve `OffloadedWindows`' of the name."""

    def __init__(self, name: str, like: PartialRing, store: Stores, place: Place):
        self.name, self.slots, self.ages, self.rounds = name, like.slots, like.ages, like.rounds
        room, size = like.earlier.shape
        empty = lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)
        self.like = dataclasses.replace(like, entered=empty(like.entered), earlier=empty(like.earlier))
        layout = record_layout(jax.ShapeDtypeStruct((size,), like.dtype))
        self.offload, self.place = Offload(store(f"{name}.ring", layout, self.slots), room), place
        # Two buffers for vectors that are pushed: one is written back while the next dispatch fills the other.
        self._spare: jax.Array | None = None
        self._written: jax.Array | None = None
        self._base = 0

    def _slots_of(self, first: int, count: int) -> np.ndarray:
        return (first + np.arange(count)) % self.slots

    def prefetch(self, count: int, cohort: Cohort, following: int) -> None:
        """Starts to read for the dispatch of `following` pushes that comes after the present one of `count`."""
        self.offload.prefetch(vectors_leaving(self._base + count, following, self.ages) % self.slots)

    def load(self, run, placement, cohort: Cohort, rounds: int):
        """Returns a state with the vectors of a dispatch; `placement` is the state's, or None."""
        self._base = base = int(windows_of(run)[self.name].count)
        entered, sharding = partial_rings(run)[self.name].entered, placement and partial_rings(placement)[self.name]
        numbers = vectors_leaving(base, rounds, self.ages)
        leaving = leaving_indices(base, numbers, self.like)
        (earlier,), _ = self.offload.load(numbers % self.slots, self._slots_of(base, rounds))
        host = dataclasses.replace(self.like, entered=(), earlier=earlier, base=np.int32(base), leaving=leaving)
        ring = self.place(host, sharding and dataclasses.replace(sharding, entered=()))
        start, pieces = earlier.ctypes.data, jax.block_until_ready(ring.earlier).addressable_shards
        # A CPU device may use the array itself.
        if not any(start <= piece.data.unsafe_buffer_pointer() < start + earlier.nbytes for piece in pieces):
            self.offload.reuse([earlier])
        if entered is self._written:
            entered, self._spare = self._spare, None
            if entered is None:
                like, where = self.like.entered, sharding and sharding.entered
                entered = jnp.zeros(like.shape, like.dtype, device=where)
        return with_rings(run, {self.name: dataclasses.replace(ring, entered=entered)})

    def write_back(self, run) -> None:
        """Starts to write the vectors that a dispatch pushed.

        Raises:
          UserError: there were more than rounds.
        """
        pushed, entered = int(windows_of(run)[self.name].count) - self._base, partial_rings(run)[self.name].entered
        if pushed > self.rounds:
            raise UserError(
                f"the window '{self.name}' is pushed to more than once a round; keep it on the device, --window=device."
            )
        # A view on a CPU, a separate array object: `entered` would remember the view, and not be donated.
        view = jax.default_backend() == "cpu" and entered.is_fully_replicated
        vectors = np.asarray(entered.addressable_data(0) if view else multi_process.all_gather(entered))[:pushed]
        # A dispatch may go round a short ring buffer several times: the last vectors stay.
        vectors = vectors[-self.slots :]
        self.offload.write_back(self._slots_of(self._base + pushed - len(vectors), len(vectors)), [vectors])
        self._spare, self._written = self._written, entered

    def checkpoint(self, run):
        """Ends a snapshot; returns a state with the ring buffer as a checkpoint holds it: a Reference, or an array."""
        reference, store = self.offload.commit(int(run.round)), self.offload.store
        return with_rings(run, {self.name: store.fields[0] if isinstance(store, MemoryStore) else reference})

    def restore(self, saved, run):
        """Stores the vectors of a checkpoint; returns its state with a ring buffer like that of a fresh one."""
        node = windows_of(saved)[self.name]
        count, source = int(node.count), node.ring
        snapshot = source.snapshot if isinstance(source, SnapshotRing) else None
        stored = min(count, self.slots)
        slots = self._slots_of(count - stored, stored)
        self.offload.restore(snapshot, slots, lambda some: [np.asarray(source[slots[some]])])
        return with_rings(saved, {self.name: newest_vectors(windows_of(run)[self.name].ring, node)})


class OffloadedModels:
    """The old models of an asynchronous run in a record store, which begins with that of round 0.

    Methods as those of `OffloadedRing`.
    """

    def __init__(self, like: OldModels, store: Stores, place: Place):
        leaves, self._structure = jax.tree.flatten(like.models)
        self.length, self._base, self._like = len(like.place), 0, dataclasses.replace(like, models=())
        layout = record_layout(jax.eval_shape(lambda models: tree.map(lambda leaf: leaf[0], models), like.models))
        self.offload = Offload(store(OLD_MODELS.rstrip("."), layout, self.length), len(leaves[0]))
        self.offload.restore(None, np.zeros(1, np.int64), lambda some: [np.asarray(leaf[:1]) for leaf in leaves])
        self.place = place

    def _entering(self, rounds: int) -> np.ndarray:
        """Returns the slots of the models of a dispatch's server steps."""
        return np.unique((self._base + 1 + np.arange(rounds)) % self.length)

    def _needed(self, base: int, cohort: Cohort, rounds: int) -> np.ndarray:
        """Returns the slots of the earlier models that a dispatch needs: its clients' starts, and the present one."""
        assert cohort.staleness is not None
        numbers = np.append(base, base + np.arange(rounds)[:, None] - cohort.staleness[:rounds])
        return np.unique(numbers[numbers <= base] % self.length)

    def prefetch(self, count: int, cohort: Cohort, following: int) -> None:
        self.offload.prefetch(self._needed(self._base + count, cohort, following))

    def load(self, run, placement, cohort: Cohort, rounds: int):
        self._base = int(run.round)
        needed, place = self._needed(self._base, cohort, rounds), np.zeros(self.length, np.int32)
        entering = self._entering(rounds)
        models, _ = self.offload.load(needed, entering)
        slots = np.append(needed, np.setdiff1d(entering, needed))
        place[slots] = np.arange(len(slots))
        # A copy: a CPU device may use the array itself.
        self._place = place.copy()
        old = dataclasses.replace(self._like, models=jax.tree.unflatten(self._structure, models), place=place)
        return with_old_models(run, self.place(old, placement and placement.state.own))

    def write_back(self, run) -> None:
        entered = self._entering(int(run.round) - self._base)
        models = jax.tree.leaves(multi_process.all_gather(run.state.own.models))
        self.offload.write_back(entered, [np.asarray(leaf)[self._place[entered]] for leaf in models])

    def checkpoint(self, run):
        reference, store = self.offload.commit(int(run.round)), self.offload.store
        of_memory = lambda store: jax.tree.unflatten(self._structure, store.fields)
        return with_old_models(run, of_memory(store) if isinstance(store, MemoryStore) else reference)

    def restore(self, saved, run):
        leaves = jax.tree.leaves(saved.state.own)
        snapshot = leaves[0].snapshot if isinstance(leaves[0], SnapshotRing) else None

        def read(some: slice) -> Records:
            if snapshot is None:
                return [np.asarray(leaf[some]) for leaf in leaves]
            return snapshot.read_slots(*some.indices(self.length)[:2])  # all fields of a record at once

        self.offload.restore(snapshot, np.arange(self.length), read)
        return with_old_models(saved, run.state.own)


def old_models_of(run) -> OldModels | None:
    """Returns the old models of a state, if they are not on the device as a whole."""
    own = getattr(run.state, "own", None)
    return own if isinstance(own, OldModels) else None


def with_old_models(run, ring: PyTree):
    """Returns a state with other old models."""
    return run._replace(state=run.state._replace(own=ring))


def with_newest_model(run):
    """Returns a state with the newest of its old models alone if they are in a file, read from there."""
    leaves, structure = jax.tree.flatten(getattr(run.state, "own", None))
    # A wrapper's own windows, which may be in files too, have counts beside their vectors.
    if not leaves or not all(isinstance(leaf, SnapshotRing) for leaf in leaves):
        return run
    newest = int(run.round) % len(leaves[0])
    models = jax.tree.unflatten(structure, [leaf[newest : newest + 1] for leaf in leaves])
    return with_old_models(run, OldModels(models, np.zeros(len(leaves[0]), np.int32), 0))


def windows_of(run) -> dict[str, Window | Delay]:
    """Returns name in checkpoints -> Window or Delay, of all that a state holds."""
    parts = {"observers": run.observers, "state": run.state}
    return {name: node for name, node in tree.named(parts, is_window).items() if is_window(node)}


def partial_rings(run) -> dict[str, PartialRing]:
    """Returns name in checkpoints -> ring buffer, of the offloaded ones."""
    return {name: node.ring for name, node in windows_of(run).items() if isinstance(node.ring, PartialRing)}


def with_rings(run, rings: Mapping[str, PyTree]):
    """Returns a state with other ring buffers: name in checkpoints -> ring buffer."""
    changed = iter([node._replace(ring=rings.get(name, node.ring)) for name, node in windows_of(run).items()])
    parts = {"observers": run.observers, "state": run.state}
    parts = tree.map_nodes(lambda node: next(changed), parts, Window, Delay)
    return run._replace(observers=parts["observers"], state=parts["state"])


def without_vectors(run):
    """Returns a state with SnapshotRings without vectors, as checkpoints have ring buffers, for offloaded ones."""
    if (old := old_models_of(run)) is not None:
        empty = lambda leaf: SnapshotRing((len(old.place), *leaf.shape[1:]), leaf.dtype)
        run = with_old_models(run, tree.map(empty, old.models))
    return with_rings(run, {name: SnapshotRing(ring.shape, ring.dtype) for name, ring in partial_rings(run).items()})


def traceable(run):
    """Returns a state that can be traced but not trained, for one with SnapshotRings.

    The vectors are read where weighted means need them; elsewhere, PartialRings without vectors take their place.
    """

    def ring(node):
        slots, size = node.ring.shape
        if isinstance(node, Window) and node.weighted:
            return np.asarray(node.ring)
        count = len(node.sums) if isinstance(node, Window) else 1
        zeros, leaving = np.zeros((1, size), node.ring.dtype), np.zeros((count, 1), np.int32)
        return PartialRing(zeros, zeros, np.asarray(node.count), leaving, (slots - 1,) * count, slots)

    stored = {name: node for name, node in windows_of(run).items() if isinstance(node.ring, SnapshotRing)}
    return with_rings(run, {name: ring(node) for name, node in stored.items()})
