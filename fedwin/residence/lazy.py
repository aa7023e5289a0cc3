"""Arrays whose rows are read or made when they are asked for."""

import dataclasses
import math
import pathlib
from typing import Any

import numpy as np


class Lazy:
    """An array whose rows are read or made when they are asked for."""

    # Of the array.
    shape: Any
    dtype: Any

    def _rows(self, start: int, stop: int) -> np.ndarray:
        raise NotImplementedError

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return self.size * self.dtype.itemsize

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key):
        if isinstance(key, slice) and key.step in (None, 1):
            start, stop, _ = key.indices(len(self))
            return self._rows(start, max(start, stop))
        if isinstance(key, np.ndarray) and key.ndim == 1 and key.dtype.kind == "i":
            return np.concatenate([self._rows(0, 0), *(self._rows(k, k + 1) for k in key.tolist())])
        return np.asarray(self)[key]

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        return np.asarray(self._rows(0, len(self)), dtype)

    def tobytes(self) -> bytes:
        """Returns the bytes of the array."""
        return np.asarray(self).tobytes()


@dataclasses.dataclass(frozen=True, eq=False)
class Picked(Lazy):
    """Some rows of an array in main memory.

    Attributes:
      source: the array [K, ...].
      ids: which rows [n].
    """

    source: np.ndarray
    ids: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return (len(self.ids), *self.source.shape[1:])

    @property
    def dtype(self):  # type: ignore[override]
        return self.source.dtype

    def _rows(self, start: int, stop: int) -> np.ndarray:
        return self.source[self.ids[start:stop]]


@dataclasses.dataclass(frozen=True, eq=False)
class Stored(Lazy):
    """An array in a file that holds its bytes in C order and nothing else.

    Attributes:
      path: the file.
      shape: of the array.
      dtype: of the array.
    """

    path: pathlib.Path
    shape: tuple[int, ...]
    dtype: np.dtype

    def _rows(self, start: int, stop: int) -> np.ndarray:
        row = math.prod(self.shape[1:])
        read = np.fromfile(self.path, self.dtype, (stop - start) * row, offset=start * row * self.dtype.itemsize)
        return read.reshape(stop - start, *self.shape[1:])


@dataclasses.dataclass(frozen=True, eq=False)
class Cut(Lazy):
    """What one device holds of an array.

    Attributes:
      source: the array.
      index: the slices of it, one per axis.
    """

    source: Any
    index: tuple[slice, ...]

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return tuple(len(range(*cut.indices(n))) for cut, n in zip(self.index, self.source.shape, strict=True))

    @property
    def dtype(self):  # type: ignore[override]
        return self.source.dtype

    def _rows(self, start: int, stop: int) -> np.ndarray:
        low = self.index[0].indices(self.source.shape[0])[0]
        return self.source[low + start : low + stop][(slice(None), *self.index[1:])]
