"""Large arrays block by block: lazy arrays, files, and placing on devices without a second copy in memory.

Arrays in files are read with explicit reads instead of `np.memmap`: an I/O error or a file that was truncated in the
meantime raises an exception instead of ending the process with SIGBUS, and JAX on a CPU cannot alias the pages.
"""

import dataclasses
import functools
import math
import os
import pathlib
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


class Lazy:
    """An array whose rows are read or computed on access; subclasses define shape, dtype and `_rows`."""

    shape: tuple[int, ...]
    dtype: np.dtype

    def _rows(self, start: int, stop: int) -> np.ndarray:
        """Returns rows start to stop - 1."""
        raise NotImplementedError

    @property
    def size(self) -> int:
        return math.prod(self.shape)

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


class Picked(Lazy):
    """The rows `ids` of an array in main memory."""

    def __init__(self, source: np.ndarray, ids: np.ndarray):
        self.source, self.ids = source, ids
        self.shape, self.dtype = (len(ids), *source.shape[1:]), source.dtype

    def _rows(self, start: int, stop: int) -> np.ndarray:
        return self.source[self.ids[start:stop]]


@dataclasses.dataclass(frozen=True, eq=False)
class Stored(Lazy):
    """An array in a file that holds its bytes in C order and nothing else."""

    path: pathlib.Path
    shape: tuple[int, ...]
    dtype: np.dtype

    def _rows(self, start: int, stop: int) -> np.ndarray:
        row = math.prod(self.shape[1:])
        read = np.fromfile(self.path, self.dtype, (stop - start) * row, offset=start * row * self.dtype.itemsize)
        return read.reshape(stop - start, *self.shape[1:])


class Cut(Lazy):
    """The part of an array that one device holds; `index` has a slice per axis."""

    def __init__(self, source: "AnyArray", index: tuple[slice, ...]):
        self.source, self.index, self.dtype = source, index, source.dtype
        self.shape = tuple(len(range(*cut.indices(n))) for cut, n in zip(index, source.shape, strict=True))

    def _rows(self, start: int, stop: int) -> np.ndarray:
        low = self.index[0].indices(self.source.shape[0])[0]
        return np.asarray(self.source[low + start : low + stop][(slice(None), *self.index[1:])])


AnyArray = jax.Array | np.ndarray | Lazy

# Bytes of a block, which has at least one row.
BLOCK_BYTES = 4 << 20
# Bytes that are written at a time, or become a hole of the file if they are all zero.
PIECE_BYTES = 1 << 20


def _parts(array: jax.Array) -> list[tuple[tuple[slice, ...], jax.Array | np.ndarray]]:
    """Returns (index, values) of the shards that make up an array; on a CPU they are views, to be dropped after use."""
    pieces = {str(shard.index): (shard.index, shard.data) for shard in array.addressable_shards}
    on_cpu = next(iter(array.devices())).platform == "cpu"
    return [(index, np.asarray(data) if on_cpu else data) for index, data in pieces.values()]


def _cut(values, start: int, stop: int) -> np.ndarray:
    # Sliced on the device, from a traced start: one program serves all blocks.
    return values[start:stop] if isinstance(values, np.ndarray) else np.asarray(_slice(values, start, stop - start))


def _joined(parts, start: int, stop: int, shape: tuple[int, ...], dtype) -> np.ndarray:
    """Returns rows start to stop - 1 of an array that is given in parts."""
    if len(parts) == 1:
        return _cut(parts[0][1], start, stop)
    rows = np.empty((stop - start, *shape[1:]), dtype)
    for (first, *others), values in parts:
        low, high, _ = first.indices(shape[0])
        begin, end = max(start, low), min(stop, high)
        if begin < end:
            rows[(slice(begin - start, end - start), *others)] = _cut(values, begin - low, end - low)
    return rows


def blocks(array) -> Iterator[np.ndarray]:
    """Yields an array's rows in order, a block at a time, as NumPy arrays in C order; a scalar is one block."""
    if not len(array.shape):
        yield np.asarray(array).reshape(1)
        return
    parts = _parts(array) if isinstance(array, jax.Array) else None
    length = max(1, BLOCK_BYTES // max(1, math.prod(array.shape[1:]) * array.dtype.itemsize))
    for start in range(0, array.shape[0], length):
        stop = min(start + length, array.shape[0])
        rows = array[start:stop] if parts is None else _joined(parts, start, stop, array.shape, array.dtype)
        yield np.ascontiguousarray(rows)


def set_rows(array, ids: np.ndarray, rows) -> jax.Array:
    """Returns an array [K, ...] on its devices, donated, with the rows `ids` changed, block by block."""
    at = 0
    for block in blocks(rows):
        array = _set(array, ids[at : at + len(block)], block)
        at += len(block)
    return array


def write(path, array) -> None:
    """Writes an array's bytes to a file; zeros take no space where the file system supports holes."""
    with open(path, "wb", buffering=0) as file:
        for block in blocks(array):
            values = block.reshape(-1).view(np.uint8).data
            for at in range(0, len(values), PIECE_BYTES):
                _write_piece(file, values[at : at + PIECE_BYTES])
        file.truncate(file.tell())
        os.fsync(file.fileno())


def _write_piece(file, piece: memoryview) -> None:
    if not np.frombuffer(piece, np.uint8).any():
        file.seek(len(piece), os.SEEK_CUR)
        return
    while piece:
        piece = piece[file.write(piece) :]  # a disk that is nearly full accepts a part


@functools.partial(jax.jit, donate_argnums=0)
def _put(whole, rows, start):
    return lax.dynamic_update_slice_in_dim(whole, rows, start, 0)


@functools.partial(jax.jit, donate_argnums=0)
def _set(whole, ids, rows):
    return whole.at[ids].set(rows)


@functools.partial(jax.jit, static_argnums=2)
def _slice(values, start, size: int):
    return lax.dynamic_slice_in_dim(values, start, size)


def _filled(part, device=None) -> jax.Array:
    """Returns an array on one device, filled block by block."""
    whole = jnp.zeros(part.shape, part.dtype, device=device)
    at = 0
    for rows in blocks(part):
        whole = _put(whole, jax.device_put(rows, device), at)
        at += len(rows)
    return whole


def placed(values):
    """Returns a tree of arrays with the lazy ones on the default device."""
    return jax.tree.map(lambda leaf: place(leaf) if isinstance(leaf, Lazy) else leaf, values)


def place(array: Lazy, sharding=None) -> jax.Array:
    """Returns an array on its devices."""
    if sharding is None:
        return _filled(array)
    indices = sharding.addressable_devices_indices_map(array.shape)
    filled = [_filled(Cut(array, index), device) for device, index in indices.items()]
    return jax.make_array_from_single_device_arrays(array.shape, sharding, filled)
