"""Where a ring of vectors is that is not on the device: in host memory, or in a file that checkpoints name."""

from typing import Any

import numpy as np

from fedwin.residence.generations import Field, Generation, Layout
from fedwin.residence.lazy import Lazy

# Vectors that are copied at a time from one place to another.
TOGETHER = 16


def layout_of_ring(size: int, dtype) -> Layout:
    """Returns the layout of a record that is one vector [P]."""
    return Layout((Field("", (size,), np.dtype(dtype).name),))


class RingMemory:
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


class FiledRing(Lazy):
    """A ring [slots, P] that is read on access.

    Args:
      shape: [slots, P].
      dtype: of a vector.
      generation: what it is read from; None: no vector was pushed yet.
    """

    def __init__(self, shape: tuple[int, int], dtype, generation: Generation | None = None):
        self.shape, self.dtype, self.generation = shape, np.dtype(dtype), generation

    def of_length(self, slots: int) -> "FiledRing":
        """Returns the same vectors in a ring of another length."""
        return FiledRing((slots, self.shape[1]), self.dtype, self.generation)

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
