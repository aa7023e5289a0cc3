"""Training examples on the device: all of them for the whole run, or streamed to it dispatch by dispatch."""

import concurrent.futures
import math
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from fedwin.core import Cohort
from fedwin.data.example_source import ExampleSource, Images
from fedwin.data.federation import Federation, ShardedStore, Store, client_weights, make_store
from fedwin.data.integrity import check_arrays
from fedwin.residence.rows import distinct_clients, slots_of

# Above this many bytes of examples a run streams, unless --examples says otherwise.
RESIDENT_BYTES = 4 << 30
# Examples of a usual dispatch; two dispatches are in memory at a time, one trained on and one being read and placed.
DISPATCH_BYTES = 192 << 20


class TrainingExamples:
    """Training examples of a run, placed on its devices.

    Attributes:
      rounds: upper bound on the rounds of a dispatch.
      waited: seconds spent waiting for examples so far.
    """

    rounds: int
    waited = 0.0

    def load(self, cohort: Cohort) -> tuple[Store | ShardedStore, np.ndarray]:
        """Returns the examples of a dispatch; waits for them.

        Args:
          cohort: its clients, arrays [R, C]; their rows are not read.

        Returns:
          (the placed Store, every client's row of it, int32 [R, C]).

        Raises:
          UserError: an example can't be read, or a packed cache is damaged.
        """
        raise NotImplementedError

    def prefetch(self, cohort: Cohort) -> None:
        """Starts to read and place the examples of the next dispatch's clients."""

    def close(self) -> None:
        """Stops threads and closes files."""


def example_bytes(features: Mapping[str, Any]) -> int:
    """Returns the bytes of one example of these features [N, ...]."""
    return sum(math.prod(values.shape[1:]) * values.dtype.itemsize for values in features.values())


def should_stream(federation: Federation, choice: str) -> bool:
    """Whether examples are streamed: by choice, or because they are decoded on access or exceed RESIDENT_BYTES."""
    if choice != "auto":
        return choice == "stream"
    train = federation.features
    return isinstance(train["x"], Images) or example_bytes(train) * len(train["y"]) > RESIDENT_BYTES


class ResidentExamples(TrainingExamples):
    """Examples that stay on the device for the whole run.

    Args:
      place: Store of host arrays -> Store on the devices.
      examples: placed examples that another seed of the run has, or None.
    """

    def __init__(self, federation: Federation, rounds: int, place: Callable, examples=None):
        self.rounds, store = rounds, federation.store()
        placed = place(store.examples) if examples is None else examples
        self.store = place(store._replace(examples={}))._replace(examples=placed)

    def load(self, cohort: Cohort) -> tuple[Store, np.ndarray]:
        return self.store, np.asarray(cohort.ids)


def capacities(sizes: np.ndarray, clients: int) -> tuple[int, ...]:
    """Returns the numbers of examples that dispatches are padded to, one to three of them, ascending.

    The last bounds any dispatch. Where client sizes differ much, few dispatches need that many: the first is the mean
    need plus its standard deviation, the second is between them.
    """
    bound = int(np.sort(sizes)[::-1][:clients].sum())
    spread = sizes.std() * np.sqrt(clients * (1 - clients / len(sizes)))
    usual = int(np.ceil(clients * sizes.mean() + spread))
    if bound <= 1.5 * usual:  # not worth another compilation
        return (bound,)
    return usual, int(np.ceil(np.sqrt(usual * bound))), bound


def _in_background(function: Callable, *args) -> concurrent.futures.Future:
    """Calls a function in a daemon thread, which does not keep the process from exiting."""
    future: concurrent.futures.Future = concurrent.futures.Future()

    def call():
        try:
            future.set_result(function(*args))
        except BaseException as error:  # raised again by result()
            future.set_exception(error)

    threading.Thread(target=call, daemon=True).start()
    return future


class StreamedExamples(TrainingExamples):
    """Packs the examples of a dispatch's clients and places them on the device, those of the next one while it trains.

    Indices inside the Store count the dispatch's clients, so algorithms see no difference from a resident one. Each of
    several devices gets the examples of its own part of every cohort, and a process reads those of its devices. The
    checksums of a packed cache are verified in the background.

    Args:
      strategy: engine.Strategy, which pads the cohorts and places values on the devices.

    Attributes:
      capacities: sizes that dispatches are padded to, that of a usual one first.
    """

    def __init__(self, federation: Federation, clients_per_round: int, rounds: int, strategy):
        self.federation, self.strategy, self.sizes = federation, strategy, federation.sizes
        width = strategy.multiple(clients_per_round) // strategy.num_devices
        # CPU devices have one memory.
        copies = strategy.num_devices if jax.default_backend() == "cpu" else 1
        self.example_bytes = example_bytes(federation.features)
        per_round = width * self.sizes.mean() * self.example_bytes
        self.rounds = int(max(1, min(rounds, DISPATCH_BYTES // copies // max(per_round, 1))))
        self.clients = min(self.rounds * width, federation.num_clients)
        self.capacities = capacities(self.sizes, self.clients)
        self.weight = client_weights(self.sizes)
        self.source = ExampleSource(federation.features)
        self._checked = _in_background(check_arrays, federation.features)
        # One dispatch after the other: the source reads each on all cores.
        self._reader = concurrent.futures.ThreadPoolExecutor(1)
        self._prefetched: dict[tuple[bytes, bytes], concurrent.futures.Future] = {}

    def prefetch(self, cohort: Cohort) -> None:
        if _name(cohort) not in self._prefetched:
            self._prefetched[_name(cohort)] = self._reader.submit(self._pack, cohort)

    def load(self, cohort: Cohort) -> tuple[Store | ShardedStore, np.ndarray]:
        if self._checked.done():
            self._checked.result()
        start = time.monotonic()
        self.prefetch(cohort)
        loaded = self._prefetched.pop(_name(cohort)).result()
        self.waited += time.monotonic() - start
        return loaded

    def _pack(self, cohort: Cohort) -> tuple[Store | ShardedStore, np.ndarray]:
        """Reads the examples of clients [R, C]; each device has its part of the C."""
        split = lambda values: np.split(values, self.strategy.num_devices, axis=-1)
        parts = [Cohort.of(*part) for part in zip(split(cohort.ids), split(cohort.present), strict=True)]
        clients = [distinct_clients(part) for part in parts]
        # The same capacity everywhere: the devices run one program.
        need = max(int(self.sizes[some].sum()) for some in clients)
        capacity = next(c for c in self.capacities if c >= need)
        rows = np.concatenate([slots_of(part, some, 0) for part, some in zip(parts, clients, strict=True)], -1)
        with jax.enable_x64(self.weight.dtype == np.float64):  # the run's own holds in its thread alone
            if self.strategy.mesh is None:
                return self.strategy.place(self._store(clients[0], capacity)), rows
            stores = {n: self._store(clients[n], capacity) for n in self.strategy.own_positions}
            return ShardedStore(self.strategy.place_split(stores)), rows

    def _store(self, clients: np.ndarray, capacity: int) -> Store:
        """Reads the examples of some clients."""
        order = self.federation.partition.select(clients).order
        sizes = np.zeros(self.clients, np.int64)
        sizes[: len(clients)] = self.sizes[clients]
        picked = np.resize(clients, self.clients) if len(clients) else np.zeros(self.clients, int)
        return make_store(
            self.source.gather(order, capacity),
            sizes,
            order=np.arange(capacity, dtype=np.int32),
            info=jax.tree.map(lambda leaf: leaf[picked], self.federation.info),
            weight=self.weight[picked],
        )

    def close(self) -> None:
        self._reader.shutdown(cancel_futures=True)
        self.source.close()


def _name(cohort: Cohort) -> tuple[bytes, bytes]:
    return cohort.ids.tobytes(), cohort.present.tobytes()


def make_examples(
    federation: Federation, choice: str, strategy, clients_per_round: int, rounds: int, shared=None
) -> TrainingExamples:
    """Returns the examples of a run, ResidentExamples or StreamedExamples.

    Args:
      choice: 'device', 'stream' or 'auto'.
      strategy: engine.Strategy, which pads the cohorts and places values on the devices.
      shared: placed examples that another seed of the run has, or None.
    """
    if should_stream(federation, choice):
        return StreamedExamples(federation, clients_per_round, rounds, strategy)
    return ResidentExamples(federation, rounds, strategy.place, shared)
