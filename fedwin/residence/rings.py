"""Offloaded windows and old models: ring buffers in record stores; the device holds what a dispatch needs.

A ring buffer is a table whose clients are slot numbers: vector (or model) number n is the record n mod slots.
"""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from fedwin import multi_process, tree
from fedwin.core import Cohort
from fedwin.errors import UserError
from fedwin.residence.blockwise import AnyArray
from fedwin.residence.offload import Offload
from fedwin.residence.rows import ClientTable
from fedwin.residence.saved import SnapshotRing
from fedwin.residence.store import MemoryStore, RecordLayout, RecordStore, Reference, record_layout
from fedwin.tree import PyTree
from fedwin.window import Delay, PartialRing, Window, is_window
from fedwin.wrappers.asynchronous import OLD_MODELS, OldModels


def max_earlier(rounds: int, ages: tuple[int, ...]) -> int:
    """Returns H: room for all vectors that can leave in a dispatch without having entered in it, and for a zero."""
    return min(sum(min(age, rounds) for age in ages), max(ages)) + 1


def vectors_leaving(base: int, count: int, ages: tuple[int, ...]) -> np.ndarray:
    """Returns the numbers of the vectors pushed before a dispatch that leave in it, ascending, int64."""
    numbers = base + np.arange(count)[:, None] - np.asarray(ages)
    return np.unique(numbers[(numbers >= 0) & (numbers < base)])


def leaving_indices(base: int, earlier: np.ndarray, like: PartialRing) -> np.ndarray:
    """Returns `PartialRing.leaving` of a dispatch, int32 [n, R]."""
    numbers = base + np.arange(like.rounds) - np.asarray(like.ages)[:, None]
    zero = like.rounds + like.earlier.shape[0] - 1
    stored = np.isin(numbers, earlier)
    index = like.rounds + np.searchsorted(earlier, numbers)
    return np.where(numbers >= base, numbers - base, np.where(stored, index, zero)).astype(np.int32)


def newest_vectors(like: PartialRing, node) -> PartialRing:
    """Returns a PartialRing with the newest vectors of a window's ring buffer, where its weighted means read them."""
    base = int(node.count) - 1
    if base < 0 or not getattr(node, "weighted", ()):
        return like
    numbers, earlier = vectors_leaving(base, 1, like.ages), np.zeros(like.earlier.shape, like.dtype)
    earlier[: len(numbers)] = np.asarray(node.ring[numbers % like.slots])
    entered = like.entered.at[0].set(np.asarray(node.ring[np.array([base % like.slots])])[0])
    leaving = leaving_indices(base, numbers, like)
    return dataclasses.replace(like, entered=entered, earlier=earlier, base=np.int32(base), leaving=leaving)


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
        if not is_window(node):
            return node
        ages = node.ages
        if rounds is None or not ages:
            fresh = isinstance(node.ring, np.ndarray) and not node.count
            return node._replace(ring=jnp.zeros(node.ring.shape, node.ring.dtype)) if fresh else node
        if not isinstance(node.count, jax.core.Tracer) and node.count:
            raise UserError("a window is pushed to before the first round; keep it on the device, --window=device.")
        size, dtype = node.ring.shape[1], node.ring.dtype
        entered = jnp.zeros((rounds, size), dtype)
        earlier = jnp.zeros((max_earlier(rounds, ages), size), dtype)
        leaving = jnp.zeros((len(ages), rounds), jnp.int32)
        ring = PartialRing(entered, earlier, jnp.zeros((), jnp.int32), leaving, ages, node.ring.shape[0])
        return node._replace(ring=ring)

    return jax.tree.map(allocated, state, is_leaf=lambda node: is_window(node) or isinstance(node, OldModels))


class OffloadedWindows(ClientTable):
    """A client table, and the ring buffers that are offloaded: every method serves both.

    Args:
      table: the client table.
      run: a fresh state, whose offloaded ring buffers are PartialRings.
      store: (name, layout of a vector, slots) -> record store, or None in a process that owns none.
      place: (values, shardings or None) -> values on the devices, those of process 0.
      placement: state -> shardings of its leaves, or None.
    """

    def __init__(
        self,
        table: ClientTable,
        run: PyTree,
        store: Callable[[str, RecordLayout, int], RecordStore | None],
        place: Callable[[PyTree, PyTree], PyTree],
        placement: Callable[[PyTree], PyTree],
    ):
        super().__init__(table.num_clients, table.slots)
        self.table, self.place, self.placement = table, place, placement
        partial = {name: node.ring for name, node in windows_of(run).items() if isinstance(node.ring, PartialRing)}
        self.rings = {name: OffloadedRing(name, ring, store) for name, ring in partial.items()}
        old = old_models_of(run)
        self.models = None if old is None else OffloadedModels(old, store)
        self._count = 0

    def load(self, run, cohort: Cohort, rounds: int):
        run, slots = self.table.load(run, cohort, rounds)
        self._count, placement = rounds, self.placement(run)
        shardings = {} if placement is None else {name: node.ring for name, node in windows_of(placement).items()}

        def loaded(name, node):
            if (offloaded := self.rings.get(name)) is None:
                return node.ring
            host, sharding = offloaded.load(int(node.count), rounds), shardings.get(name)
            ring = self.place(host, sharding and dataclasses.replace(sharding, entered=()))
            offloaded.reuse(host.earlier, ring.earlier)
            entered = offloaded.entered_buffer(node.ring.entered, sharding and sharding.entered)
            return dataclasses.replace(ring, entered=entered)

        if self.models is not None:
            ring = self.models.load(int(run.round), cohort, rounds)
            run = with_old_models(run, self.place(ring, placement and placement.state.own))
        return with_rings(run, loaded), slots

    def prefetch(self, cohort: Cohort, rounds: int) -> None:
        self.table.prefetch(cohort, rounds)
        if self.models is not None:
            self.models.prefetch(self._count, cohort, rounds)
        for ring in self.rings.values():
            ring.prefetch(self._count, rounds)

    def write_back(self, run) -> None:
        self.table.write_back(run)
        if self.models is not None:
            self.models.write_back(run)
        for name, node in windows_of(run).items():
            if name in self.rings:
                self.rings[name].write_back(node)

    def checkpoint(self, run):
        committed = {name: ring.commit(int(run.round)) for name, ring in self.rings.items()}
        if self.models is not None:
            run = with_old_models(run, self.models.commit(int(run.round)))
        return self.table.checkpoint(with_rings(run, lambda name, node: committed.get(name, node.ring)))

    def checkpoint_form(self, run):
        return self.table.checkpoint_form(without_vectors(run))

    def restore(self, saved, run):
        fresh = {name: node.ring for name, node in windows_of(run).items()}

        def ring(name, node):
            if name in self.rings:
                self.rings[name].restore(node.ring, int(node.count))
                return newest_vectors(fresh[name], node)
            return node.ring

        if self.models is not None:
            self.models.restore(saved.state.own)
            saved = with_old_models(saved, run.state.own)
        return self.table.restore(with_rings(saved, ring), run)

    def reclaim(self) -> None:
        self.table.reclaim()
        for each in self._offloaded:
            each.reclaim()

    def close(self) -> None:
        for each in self._offloaded:
            each.close()
        self.table.close()

    @property
    def _offloaded(self) -> list[Offload]:
        return [each.offload for each in (*self.rings.values(), self.models) if each is not None]


def client_table_of(table: ClientTable) -> ClientTable:
    """Returns the client table without offloaded windows."""
    return table.table if isinstance(table, OffloadedWindows) else table


class OffloadedRing:
    """A ring buffer in a record store; in a process without one, it takes part in the exchanges alone."""

    def __init__(self, name: str, like: PartialRing, store: Callable[[str, RecordLayout, int], RecordStore | None]):
        self.name, self.slots, self.ages, self.rounds = name, like.slots, like.ages, like.rounds
        room, size = like.earlier.shape
        empty = lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)
        self.like = dataclasses.replace(like, entered=empty(like.entered), earlier=empty(like.earlier))
        layout = record_layout(jax.ShapeDtypeStruct((size,), like.dtype))
        self.offload = Offload(store(f"{name}.ring", layout, self.slots), layout, room)
        # Two buffers for vectors that are pushed: one is written back while the next dispatch fills the other.
        self._spare: jax.Array | None = None
        self._written: jax.Array | None = None
        self._base = 0

    def _slots_of(self, first: int, count: int) -> np.ndarray:
        return (first + np.arange(count)) % self.slots

    def prefetch(self, count: int, following: int) -> None:
        """Starts to read for the dispatch of `following` pushes that comes after the present one of `count`."""
        self.offload.prefetch(vectors_leaving(self._base + count, following, self.ages) % self.slots)

    def load(self, base: int, count: int) -> PartialRing:
        """Returns the vectors of a dispatch as host arrays; `entered` is to come from `entered_buffer`."""
        self._base = base
        numbers = vectors_leaving(base, count, self.ages)
        leaving = leaving_indices(base, numbers, self.like)
        (earlier,), _ = self.offload.load(numbers % self.slots, self._slots_of(base, count))
        return dataclasses.replace(self.like, entered=(), earlier=earlier, base=np.int32(base), leaving=leaving)

    def entered_buffer(self, entered: jax.Array, sharding) -> jax.Array:
        """Returns an array on the devices that a dispatch may fill with its vectors; its values do not matter."""
        if entered is not self._written:
            return entered
        spare, self._spare = self._spare, None
        return jnp.zeros(entered.shape, entered.dtype, device=sharding) if spare is None else spare

    def reuse(self, earlier: np.ndarray, on_devices: jax.Array) -> None:
        """Takes back an array of `load`'s that was copied to the devices."""
        start = earlier.ctypes.data
        pieces = jax.block_until_ready(on_devices).addressable_shards
        # A CPU device may use the array itself.
        if not any(start <= piece.data.unsafe_buffer_pointer() < start + earlier.nbytes for piece in pieces):
            self.offload.reuse([earlier])

    def write_back(self, node: Window | Delay) -> None:
        """Starts to write the vectors that a dispatch pushed.

        Raises:
          UserError: there were more than rounds.
        """
        pushed = int(node.count) - self._base
        if pushed > self.rounds:
            raise UserError(
                f"the window '{self.name}' is pushed to more than once a round; keep it on the device, --window=device."
            )
        assert isinstance(node.ring, PartialRing)
        entered = node.ring.entered
        # A view on a CPU, a separate array object: `entered` would remember the view, and not be donated.
        view = jax.default_backend() == "cpu" and entered.is_fully_replicated
        vectors = np.asarray(entered.addressable_data(0) if view else multi_process.all_gather(entered))[:pushed]
        # A dispatch may go round a short ring buffer several times: the last vectors stay.
        vectors = vectors[-self.slots :]
        self.offload.write_back(self._slots_of(self._base + pushed - len(vectors), len(vectors)), [vectors])
        self._spare, self._written = self._written, entered

    def commit(self, round: int) -> Reference | np.ndarray | None:
        """Ends a snapshot; returns the ring buffer as a checkpoint holds it: a Reference, an array, or nothing."""
        reference, store = self.offload.commit(round), self.offload.store
        return store.fields[0] if isinstance(store, MemoryStore) else reference

    def restore(self, source: AnyArray, count: int) -> None:
        """Stores the vectors of a checkpoint's ring buffer."""
        snapshot = source.snapshot if isinstance(source, SnapshotRing) else None
        stored = min(count, self.slots)
        slots = self._slots_of(count - stored, stored)
        self.offload.restore(snapshot, slots, lambda some: [np.asarray(source[slots[some]])])


class OffloadedModels:
    """The old models of an asynchronous run in a record store, which begins with that of round 0."""

    def __init__(self, like: OldModels, store: Callable[[str, RecordLayout, int], RecordStore | None]):
        leaves, self._structure = jax.tree.flatten(like.models)
        self.length, self._base, self._like = len(like.place), 0, dataclasses.replace(like, models=())
        layout = record_layout(jax.eval_shape(lambda models: tree.map(lambda leaf: leaf[0], models), like.models))
        self.offload = Offload(store(OLD_MODELS.rstrip("."), layout, self.length), layout, len(leaves[0]))
        self.offload.restore(None, np.zeros(1, np.int64), lambda some: [np.asarray(leaf[:1]) for leaf in leaves])

    def _entering(self, rounds: int) -> np.ndarray:
        """Returns the slots of the models of a dispatch's server steps."""
        return np.unique((self._base + 1 + np.arange(rounds)) % self.length)

    def _needed(self, base: int, cohort: Cohort, rounds: int) -> np.ndarray:
        """Returns the slots of the earlier models that a dispatch needs: its clients' starts, and the present one."""
        assert cohort.staleness is not None
        numbers = np.append(base, base + np.arange(rounds)[:, None] - cohort.staleness[:rounds])
        return np.unique(numbers[numbers <= base] % self.length)

    def prefetch(self, count: int, cohort: Cohort, following: int) -> None:
        """Starts to read for the dispatch of `following` rounds that comes after the present one of `count`."""
        self.offload.prefetch(self._needed(self._base + count, cohort, following))

    def load(self, base: int, cohort: Cohort, rounds: int) -> OldModels:
        """Returns the models of a dispatch as host arrays."""
        self._base, needed = base, self._needed(base, cohort, rounds)
        entering, place = self._entering(rounds), np.zeros(self.length, np.int32)
        models, _ = self.offload.load(needed, entering)
        slots = np.append(needed, np.setdiff1d(entering, needed))
        place[slots] = np.arange(len(slots))
        # A copy: a CPU device may use the array itself.
        self._place = place.copy()
        return dataclasses.replace(self._like, models=jax.tree.unflatten(self._structure, models), place=place)

    def write_back(self, run) -> None:
        """Starts to write the models of a dispatch's server steps."""
        entered = self._entering(int(run.round) - self._base)
        models = jax.tree.leaves(multi_process.all_gather(run.state.own.models))
        self.offload.write_back(entered, [np.asarray(leaf)[self._place[entered]] for leaf in models])

    def commit(self, round: int) -> PyTree:
        """Ends a snapshot; returns the ring as a checkpoint holds it: a Reference, or a tree of [L, ...]."""
        reference, store = self.offload.commit(round), self.offload.store
        return jax.tree.unflatten(self._structure, store.fields) if isinstance(store, MemoryStore) else reference

    def restore(self, ring: PyTree) -> None:
        """Stores the models of a checkpoint, tree of [L, ...]."""
        leaves = jax.tree.leaves(ring)
        snapshot = leaves[0].snapshot if isinstance(leaves[0], SnapshotRing) else None
        self.offload.restore(snapshot, np.arange(self.length), lambda some: [np.asarray(leaf[some]) for leaf in leaves])


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
    nodes = jax.tree_util.tree_leaves_with_path(parts, is_leaf=is_window)
    name = lambda path: jax.tree_util.keystr(path, simple=True, separator=".")
    return {name(path): node for path, node in nodes if is_window(node)}


def with_rings(run, ring_of: Callable[[str, Window | Delay], PyTree]):
    """Returns a state with other ring buffers: (name, Window or Delay) -> ring buffer."""
    changed = iter([node._replace(ring=ring_of(name, node)) for name, node in windows_of(run).items()])
    parts = {"observers": run.observers, "state": run.state}
    parts = jax.tree.map(lambda node: next(changed) if is_window(node) else node, parts, is_leaf=is_window)
    return run._replace(observers=parts["observers"], state=parts["state"])


def offloaded_rounds(run) -> int | None:
    """Returns R of the ring buffers in a state; None where none is offloaded."""
    if (old := old_models_of(run)) is not None:
        return old.rounds
    return next((node.ring.rounds for node in windows_of(run).values() if isinstance(node.ring, PartialRing)), None)


def without_vectors(run):
    """Returns a state with SnapshotRings without vectors, as checkpoints have ring buffers, for offloaded ones."""
    if (old := old_models_of(run)) is not None:
        empty = lambda leaf: SnapshotRing((len(old.place), *leaf.shape[1:]), leaf.dtype)
        run = with_old_models(run, tree.map(empty, old.models))

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
        if isinstance(node, Window) and node.weighted:
            return np.asarray(node.ring)
        count = len(node.sums) if isinstance(node, Window) else 1
        zeros, leaving = np.zeros((1, size), node.ring.dtype), np.zeros((count, 1), np.int32)
        return PartialRing(zeros, zeros, np.asarray(node.count), leaving, (slots - 1,) * count, slots)

    return with_rings(run, ring)
