"""Examples larger than the device: each dispatch gets a small Store with just its clients' examples."""

import concurrent.futures
import time
from typing import Callable

import jax
import numpy as np

from fedwin.data.federation import Federation
from fedwin.data.reader import ExampleSource, Images
from fedwin.data.store import Store, make_store

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


def capacities(sizes: np.ndarray, clients: int) -> tuple[int, ...]:
    """Returns the numbers of examples that dispatches of so many distinct clients are padded to, one to three of them.

    The last bounds any dispatch. Where client sizes differ much few dispatches need that: the first is the mean need and
    a standard deviation of it, the second lies between.
    """
    bound = int(np.sort(sizes)[::-1][:clients].sum())
    spread = sizes.std() * np.sqrt(clients * (1 - clients / len(sizes)))
    usual = int(np.ceil(clients * sizes.mean() + spread))
    if bound <= 1.5 * usual:  # not worth another compilation
        return (bound,)
    return usual, int(np.ceil(np.sqrt(usual * bound))), bound


class Stream:
    """Packs the examples of a dispatch's clients and places them on the device, the next dispatch's while one trains.

    Addresses inside the Store are rows of the dispatch's clients, so algorithms can't tell it from a resident one.

    Args:
      federation: whose examples; width: padded clients per round; rounds: the most rounds of a dispatch that is asked for.
      place: puts a Store of host arrays on the devices; dispatch_bytes: examples of a usual dispatch, all copies together.

    Attributes:
      capacity: examples that a usual dispatch has room for; capacities: all that there are.
    """

    def __init__(
        self,
        federation: Federation,
        width: int,
        rounds: int,
        place: Callable[[Store], Store] = lambda store: store,
        dispatch_bytes: int = DISPATCH_BYTES,
    ):
        self.federation, self.place = federation, place
        self.sizes = federation.sizes
        self.example_bytes = example_bytes(federation)
        per_round = width * self.sizes.mean() * self.example_bytes
        self.rounds = int(max(1, min(rounds, dispatch_bytes // max(per_round, 1))))
        self.clients = min(self.rounds * width, federation.num_clients)
        self.capacities = capacities(self.sizes, self.clients)
        self.capacity = self.capacities[0]
        self.weight = (self.sizes / self.sizes.sum()).astype(np.float32)
        train = federation.dataset.train
        self.source = ExampleSource({name: train[name] for name in ("x", "y")})
        # One dispatch after the other: the source reads each on all cores.
        self.ahead = concurrent.futures.ThreadPoolExecutor(1)
        self.waited = 0.0
        self._requested: dict[bytes, concurrent.futures.Future] = {}

    def request(self, ids: np.ndarray) -> None:
        """Starts reading and placing the examples of these clients."""
        if ids.tobytes() not in self._requested:
            self._requested[ids.tobytes()] = self.ahead.submit(self._pack, ids)

    def take(self, ids: np.ndarray) -> tuple[Store, np.ndarray]:
        """Returns (placed Store, rows): `rows` has the shape of ids and addresses the Store's clients.

        `waited` adds up the seconds until it was there.
        """
        begun = time.monotonic()
        self.request(ids)
        found = self._requested.pop(ids.tobytes()).result()
        self.waited += time.monotonic() - begun
        return found

    def _pack(self, ids: np.ndarray) -> tuple[Store, np.ndarray]:
        partition = self.federation.partition
        unique = np.unique(ids[ids >= 0])
        order = np.concatenate([partition.client(k) for k in unique]) if len(unique) else np.zeros(0, np.int32)
        sizes = np.zeros(self.clients, np.int64)
        sizes[: len(unique)] = self.sizes[unique]
        picked = np.resize(unique, self.clients) if len(unique) else np.zeros(self.clients, int)
        capacity = next(c for c in self.capacities if c >= len(order))
        store = make_store(
            self.source.finish(self.source.pending(order, capacity)),
            sizes,
            info=jax.tree.map(lambda leaf: leaf[picked], self.federation.info),
            weight=self.weight[picked],
        )
        rows = np.where(ids >= 0, np.searchsorted(unique, np.maximum(ids, 0)), 0).astype(np.int32)
        return self.place(store), rows

    def close(self) -> None:
        """Stops the threads."""
        self.ahead.shutdown(cancel_futures=True)
        self.source.close()
