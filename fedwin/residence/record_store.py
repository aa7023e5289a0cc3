"""Record stores: numbered records of fixed size, in host memory or in a file (`fedwin.residence.file_store`)."""

import json
import math
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np


class RecordStore(Protocol):
    """Storage of numbered records: arrays [n, ...] per field of a `RecordLayout`.

    A record's number is that of a client, or of a slot of a ring buffer. `FileStore` and `HostStore` are record stores.
    """

    def contains(self, numbers: np.ndarray) -> np.ndarray:
        """Returns which records were written, bool [n]."""

    def read(self, numbers: np.ndarray, records: list[np.ndarray], places: np.ndarray) -> None:
        """Reads records [n] that were written into places [n] of arrays [room, ...], one per field."""

    def write(self, numbers: np.ndarray, records: list[np.ndarray]) -> None:
        """Writes distinct records, arrays [n, ...] per field."""

    def commit(self, round: int) -> Any:
        """Ends a snapshot; returns what the checkpoint of this round holds of the records."""

    def reclaim(self) -> None:
        """Makes the space of records available that only removed checkpoints needed."""

    def close(self) -> None:
        """Closes files."""


class Field(NamedTuple):
    """One array of a record.

    Attributes:
      name: path of the leaf.
      shape: in one record.
      dtype: its name.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def nbytes(self) -> int:
        """Bytes in a record."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


class RecordLayout(NamedTuple):
    """Contents of a record.

    Attributes:
      fields: in the order in which they are stored.
    """

    fields: tuple[Field, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of a record."""
        return sum(field.nbytes for field in self.fields)

    @property
    def text(self) -> str:
        """Content of the file `layout`."""
        return json.dumps(self.fields)

    def blank(self, count: int) -> list[np.ndarray]:
        """Returns arrays of zeros [count, ...], one per field."""
        return [np.zeros((count, *field.shape), field.dtype) for field in self.fields]


def row_layout(row) -> RecordLayout:
    """Returns the layout of a tree of shapes: one client's row."""
    leaves = jax.tree_util.tree_leaves_with_path(row)
    name = lambda path: jax.tree_util.keystr(path, simple=True, separator=".")
    return RecordLayout(tuple(Field(name(path), tuple(leaf.shape), np.dtype(leaf.dtype).name) for path, leaf in leaves))


class HostStore:
    """A record store in host memory for records that are vectors; its snapshots are the array itself.

    Args:
      count: number of records.
      size: length P of a vector.
      dtype: of it.

    Attributes:
      vectors: [count, P].
    """

    def __init__(self, count: int, size: int, dtype):
        # Pages are mapped on first touch: records that are never written cost nothing.
        self.vectors = np.zeros((count, size), dtype)

    def contains(self, numbers: np.ndarray) -> np.ndarray:
        """Returns true for all: vectors that were not written are zeros."""
        return np.ones(len(numbers), bool)

    def read(self, numbers: np.ndarray, records: list[np.ndarray], places: np.ndarray) -> None:
        """Reads vectors into places of an array [room, P]."""
        for number, place in zip(numbers, places, strict=True):
            records[0][place] = self.vectors[number]

    def write(self, numbers: np.ndarray, records: list[np.ndarray]) -> None:
        """Writes vectors [n, P]."""
        for number, vector in zip(numbers, records[0], strict=True):
            self.vectors[number] = vector

    def commit(self, round: int) -> np.ndarray:
        """Returns all vectors, [count, P]."""
        return self.vectors

    def reclaim(self) -> None:
        """Does nothing."""

    def close(self) -> None:
        """Does nothing."""
