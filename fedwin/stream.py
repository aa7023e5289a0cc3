"""Examples larger than the device: each dispatch gets a small Store with just its clients' examples."""

import jax
import numpy as np

from fedwin.data.source import ExampleSource, Images
from fedwin.engine import Store
from fedwin.federation import Federation

# Above this many bytes of examples a run streams, unless --examples says otherwise.
RESIDENT_BYTES = 4 << 30
# Examples of one dispatch; two dispatches are in memory at a time, one trained on and one being read.
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


class Stream:
    """Packs the examples of a dispatch's clients, the next dispatch's while the present one trains.

    Addresses inside the Store are rows of the dispatch's clients, so algorithms can't tell it from a resident one.

    Args:
      federation: whose examples; width: padded clients per round; rounds: the most rounds of a dispatch that is asked for.
    """

    def __init__(self, federation: Federation, width: int, rounds: int, dispatch_bytes: int = DISPATCH_BYTES):
        self.federation = federation
        largest = int(federation.sizes.max())
        per_round = width * largest * example_bytes(federation)
        self.rounds = int(max(1, min(rounds, dispatch_bytes // max(per_round, 1))))
        self.clients = min(self.rounds * width, federation.num_clients)
        # The largest clients together bound any dispatch.
        self.capacity = int(np.sort(federation.sizes)[::-1][: self.clients].sum())
        train = federation.dataset.train
        self.source = ExampleSource({name: train[name] for name in ("x", "y")})
        self._requested: dict[bytes, list] = {}

    def _rows(self, unique: np.ndarray) -> np.ndarray:
        partition = self.federation.partition
        return np.concatenate([partition.client(k) for k in unique]) if len(unique) else np.zeros(0, np.int32)

    def request(self, ids: np.ndarray) -> None:
        """Starts reading the examples of these clients."""
        unique = np.unique(ids[ids >= 0])
        if unique.tobytes() not in self._requested:
            self._requested[unique.tobytes()] = self.source.pending(self._rows(unique))

    def take(self, ids: np.ndarray) -> tuple[Store, np.ndarray]:
        """Returns (Store of host arrays, rows): `rows` has the shape of ids and addresses the Store's clients."""
        self.request(ids)
        unique = np.unique(ids[ids >= 0])
        found = self.source.finish(self._requested.pop(unique.tobytes()))
        examples = {}
        for name, values in found.items():
            padded = np.zeros((self.capacity, *values.shape[1:]), values.dtype)
            padded[: len(values)] = values
            examples[name] = padded
        sizes = np.zeros(self.clients, np.int64)
        sizes[: len(unique)] = self.federation.sizes[unique]
        picked = np.resize(unique, self.clients) if len(unique) else np.zeros(self.clients, int)
        all_sizes = self.federation.sizes
        store = Store(
            examples=examples,
            order=np.arange(self.capacity, dtype=np.int32),
            offset=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32),
            info=jax.tree.map(lambda leaf: leaf[picked], self.federation.info),
            weight=(all_sizes[picked] / all_sizes.sum()).astype(np.float32),
        )
        rows = np.where(ids >= 0, np.searchsorted(unique, np.maximum(ids, 0)), 0).astype(np.int32)
        return store, rows

    def close(self) -> None:
        self.source.close()
