"""Offloaded state in checkpoints: rows that a checkpoint holds, and references to records in files."""

import pathlib
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from fedwin import tree
from fedwin.errors import UserError
from fedwin.residence.blockwise import AnyArray, Lazy
from fedwin.residence.store import Reference, Snapshot, SnapshotLeaf
from fedwin.tree import PyTree

# Folders of client rows and of windows, inside the folder of a seed's checkpoints.
ROWS = "rows"
WINDOWS = "windows"
_TABLE = "table"


class SavedTable(NamedTuple):
    """A client table as a checkpoint holds it.

    Attributes:
      ids: clients whose rows are stored, ascending, int32 [n].
      rows: tree of [n, ...].
      total: K, int32 [].
    """

    ids: np.ndarray
    rows: PyTree
    total: np.ndarray


class SnapshotRing(Lazy):
    """A ring buffer [slots, ...] of a checkpoint, one field of its records, read from a file on access."""

    def __init__(self, shape: tuple[int, ...], dtype, snapshot: Snapshot | None = None, number: int = 0):
        self.shape, self.dtype, self.snapshot, self.number = shape, np.dtype(dtype), snapshot, number

    def _rows(self, start: int, stop: int) -> np.ndarray:
        if self.snapshot is None:
            return np.zeros((stop - start, *self.shape[1:]), self.dtype)
        return self.snapshot.read_slots(start, stop)[self.number]


def ring_folder(ring: str) -> str:
    """Returns the folder of a ring buffer, relative to the seed's checkpoints; `ring` is its name in checkpoints."""
    return f"{WINDOWS}/{re.sub('[^A-Za-z0-9_.-]', '_', ring)}"


def resolve(name: str, reference: Mapping[str, Any], directory: pathlib.Path) -> dict[str, AnyArray]:
    """Returns the leaves that a reference stands for, as arrays that are read on access.

    Args:
      name: name of the reference in the state: 'table', or the name of a ring buffer.
      reference: attributes of its Reference.
      directory: the folder of the seed's checkpoints.

    Raises:
      UserError: files are missing or damaged.
    """
    stored = Reference(**reference)
    if name != _TABLE:
        snapshot = Snapshot(directory / ring_folder(name), stored)
        ring = lambda number, field: SnapshotRing((stored.total, *field.shape), field.dtype, snapshot, number)
        fields = enumerate(snapshot.layout.fields)
        return {f"{name}.{field.name}".rstrip("."): ring(number, field) for number, field in fields}
    snapshot = Snapshot(directory / ROWS, stored)
    rows = {
        f"{_TABLE}.rows.{field.name}".rstrip("."): SnapshotLeaf(snapshot, number)
        for number, field in enumerate(snapshot.layout.fields)
    }
    return {f"{_TABLE}.ids": snapshot.ids, **rows, f"{_TABLE}.total": np.asarray(stored.total, np.int32)}


def table_template(run, leaves: Mapping[str, AnyArray]):
    """Returns a state like `run` whose table has the shapes of the SavedTable that a checkpoint's leaves hold."""
    if tree.is_empty(run.table):
        return run
    stored = len(leaves.get(f"{_TABLE}.ids", ()))
    rows = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((stored, *leaf.shape[1:]), leaf.dtype), run.table)
    spec = jax.ShapeDtypeStruct
    return run._replace(table=SavedTable(spec((stored,), np.int32), rows, spec((), np.int32)))  # type: ignore[arg-type]


def has_all_clients(leaves: Mapping[str, AnyArray]) -> bool:
    """Whether a checkpoint's leaves have a row of every client, if clients have rows."""
    return f"{_TABLE}.ids" not in leaves or len(leaves[f"{_TABLE}.ids"]) == leaves[f"{_TABLE}.total"]


def check_num_clients(saved: SavedTable, num_clients: int) -> None:
    """Raises UserError unless a checkpoint is one of a federation of K clients."""
    if saved.total != num_clients:
        raise UserError(
            f"the checkpoint holds the state of {saved.total} clients, the run has {num_clients}; keep --num_clients."
        )
