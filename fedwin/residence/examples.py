"""Where training examples live: on the device for the whole run, or streamed to it dispatch by dispatch.

Both kinds have the same few methods: `take(ids) -> (Store, rows)` for a dispatch's clients, `expect(ids)` for those of
the dispatch after it, `close()`.
"""

import concurrent.futures
import threading
import time
from collections.abc import Callable, Sequence

import jax
import numpy as np

from fedwin import tree
from fedwin.data.example_source import ExampleSource, Images
from fedwin.data.federation import Federation, ShardedStore, Store, client_weights, make_store
from fedwin.data.integrity import check_arrays
from fedwin.residence.client_table import distinct_clients, slots_of

# Above this many bytes of examples a run streams, unless --examples says otherwise.
RESIDENT_BYTES = 4 << 30
# Examples of a usual dispatch; two dispatches are in memory at a time, one trained on and one being read and placed.
DISPATCH_BYTES = 192 << 20


def example_bytes(federation: Federation) -> int:
    """Returns the bytes of one training example (x and y)."""
    train = federation.dataset.train
    return sum(int(np.prod(train[name].shape[1:], dtype=np.int64)) * train[name].dtype.itemsize for name in ("x", "y"))


def should_stream(federation: Federation, choice: str) -> bool:
    """Whether examples are streamed: asked for, decoded on access, or larger than RESIDENT_BYTES."""
    if choice != "auto":
        return choice == "stream"
    train = federation.dataset.train
    return isinstance(train["x"], Images) or example_bytes(federation) * len(train["y"]) > RESIDENT_BYTES


class ResidentExamples:
    """Examples that stay on the device for the whole run.

    Args:
      federation: whose examples.
      place: puts a Store of host arrays on the devices.
      examples: placed examples that another seed's run already holds, or None.

    Attributes:
      store: the placed Store.
      rounds: the most rounds of a dispatch (no bound).
      waited: seconds spent waiting for examples, always 0.
    """

    rounds: int | None = None
    waited = 0.0

    def __init__(self, federation: Federation, place: Callable, examples=None):
        store = federation.store()
        placed = place(store.examples) if examples is None else examples
        self.store = place(store._replace(examples=()))._replace(examples=placed)

    @property
    def nbytes(self) -> int:
        """Bytes of the examples on one device."""
        return sum(leaf.nbytes for leaf in jax.tree.leaves(self.store.examples))

    def take(self, ids: np.ndarray) -> tuple[Store, np.ndarray]:
        """Returns the Store and every client's row of it, int32 in the shape of `ids`."""
        return self.store, np.maximum(ids, 0)

    def expect(self, ids: np.ndarray) -> None:
        """Nothing has to be read ahead."""

    def close(self) -> None:
        """Nothing has to be stopped."""


def capacities(sizes: np.ndarray, clients: int) -> tuple[int, ...]:
    """Returns the numbers of examples that dispatches are padded to, one to three of them, ascending.

    The last bounds any dispatch. Where client sizes differ much, few dispatches need that many: the first is the mean
    need plus its standard deviation, the second is between them.

    Args:
      sizes: number of examples of each client [K].
      clients: distinct clients of a dispatch.
    """
    bound = int(np.sort(sizes)[::-1][:clients].sum())
    spread = sizes.std() * np.sqrt(clients * (1 - clients / len(sizes)))
    usual = int(np.ceil(clients * sizes.mean() + spread))
    if bound <= 1.5 * usual:  # not worth another compilation
        return (bound,)
    return usual, int(np.ceil(np.sqrt(usual * bound))), bound


def _in_background(function: Callable, *args) -> concurrent.futures.Future:
    """Calls a function in a thread that does not keep the process from ending."""
    future: concurrent.futures.Future = concurrent.futures.Future()

    def call():
        try:
            future.set_result(function(*args))
        except BaseException as error:  # whoever asks for the result gets it
            future.set_exception(error)

    threading.Thread(target=call, daemon=True).start()
    return future


class StreamedExamples:
    """Packs the examples of a dispatch's clients and places them on the device, the next dispatch's while one trains.

    Addresses inside the Store are rows of the dispatch's clients, so algorithms can't tell it from a resident one. Of
    several devices each gets the examples of its own part of every cohort, and a process reads those of its devices. A
    packed cache is compared with its checksums beside the training.

    Args:
      federation: whose examples.
      width: padded clients per round.
      rounds: the most rounds of a dispatch that is asked for.
      place: puts a Store of host arrays on the device; of several devices a dict place in the mesh -> Store.
      dispatch_bytes: examples of a usual dispatch on one device.
      devices: that share a cohort.
      own: places in the mesh of this process's devices.

    Attributes:
      rounds: the most rounds of a dispatch.
      capacity: examples that a usual dispatch has room for.
      capacities: all that there are.
      waited: seconds spent waiting for examples.
    """

    def __init__(
        self,
        federation: Federation,
        width: int,
        rounds: int,
        place: Callable = lambda store: store,
        dispatch_bytes: int = DISPATCH_BYTES,
        devices: int = 1,
        own: Sequence[int] = (0,),
    ):
        self.federation, self.place, self.devices, self.own = federation, place, devices, own
        width //= devices
        self.sizes = federation.sizes
        self.example_bytes = example_bytes(federation)
        per_round = width * self.sizes.mean() * self.example_bytes
        self.rounds = int(max(1, min(rounds, dispatch_bytes // max(per_round, 1))))
        self.clients = min(self.rounds * width, federation.num_clients)
        self.capacities = capacities(self.sizes, self.clients)
        self.capacity = self.capacities[0]
        self.weight = client_weights(self.sizes)
        train = federation.dataset.train
        features = {name: train[name] for name in ("x", "y")}
        self.source = ExampleSource(features)
        self._checked = _in_background(check_arrays, features)
        # One dispatch after the other: the source reads each on all cores.
        self.ahead = concurrent.futures.ThreadPoolExecutor(1)
        self.waited = 0.0
        self._expected: dict[bytes, concurrent.futures.Future] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of the examples on one device: the dispatch that is trained on, and the next one."""
        return 2 * self.capacity * self.example_bytes

    def expect(self, ids: np.ndarray) -> None:
        """Starts to read and place the examples of these clients."""
        if ids.tobytes() not in self._expected:
            self._expected[ids.tobytes()] = self.ahead.submit(self._pack, ids)

    def take(self, ids: np.ndarray) -> tuple[Store | ShardedStore, np.ndarray]:
        """Returns the placed Store and every client's row of it, int32 in the shape of `ids`; waits for it.

        Raises:
          UserError: the examples come from a packed cache that was found to be damaged.
        """
        if self._checked.done():
            self._checked.result()
        begun = time.monotonic()
        self.expect(ids)
        found = self._expected.pop(ids.tobytes()).result()
        self.waited += time.monotonic() - begun
        return found

    def _pack(self, ids: np.ndarray) -> tuple[Store | ShardedStore, np.ndarray]:
        """Reads the examples of clients [R, C]; each device has its part of the C."""
        parts = np.split(ids, self.devices, axis=-1)
        clients = [distinct_clients(part) for part in parts]
        # The same room everywhere: the devices run one program.
        need = max(int(self.sizes[some].sum()) for some in clients)
        capacity = next(c for c in self.capacities if c >= need)
        rows = np.concatenate([slots_of(part, some, 0) for part, some in zip(parts, clients, strict=True)], -1)
        if self.devices == 1:
            return self.place(self._store(clients[0], capacity)), rows
        return ShardedStore(self.place({n: self._store(clients[n], capacity) for n in self.own})), rows

    def _store(self, clients: np.ndarray, capacity: int) -> Store:
        """Reads the examples of some clients."""
        partition = self.federation.partition
        order = np.concatenate([partition.client(k) for k in clients]) if len(clients) else np.zeros(0, np.int32)
        sizes = np.zeros(self.clients, np.int64)
        sizes[: len(clients)] = self.sizes[clients]
        picked = np.resize(clients, self.clients) if len(clients) else np.zeros(self.clients, int)
        return make_store(
            self.source.finish(self.source.pending(order, capacity)),
            sizes,
            order=np.arange(capacity, dtype=np.int32),
            info=jax.tree.map(lambda leaf: leaf[picked], self.federation.info),
            weight=self.weight[picked],
        )

    def close(self) -> None:
        """Stops the threads."""
        self.ahead.shutdown(cancel_futures=True)
        self.source.close()


def example_memory(
    federation: Federation, choice: str, strategy, clients_per_round: int, rounds: int
) -> tuple[int, int]:
    """Returns (bytes of the examples on one device, the most rounds of a dispatch); arguments as of `examples_of`."""
    if not should_stream(federation, choice):
        return tree.nbytes(federation.shapes()), rounds
    found = make_examples(federation, choice, strategy, clients_per_round, rounds)
    found.close()
    return found.nbytes, found.rounds


def make_examples(federation: Federation, choice: str, strategy, clients_per_round: int, rounds: int, shared=None):
    """Returns the examples of a run, Resident or Streamed.

    Args:
      federation: whose examples.
      choice: 'device', 'stream' or 'auto'.
      strategy: places values on devices and pads cohorts.
      clients_per_round: |S|.
      rounds: the most rounds of a dispatch that is asked for.
      shared: placed examples that another seed's run already holds, or None.
    """
    if not should_stream(federation, choice):
        return ResidentExamples(federation, strategy.place, shared)
    # CPU devices have one memory.
    copies = strategy.num_devices if jax.default_backend() == "cpu" else 1
    width = strategy.multiple(clients_per_round)
    place = strategy.place if strategy.mesh is None else strategy.place_split
    devices, own = strategy.num_devices, strategy.own_places
    return StreamedExamples(federation, width, rounds, place, DISPATCH_BYTES // copies, devices, own)
