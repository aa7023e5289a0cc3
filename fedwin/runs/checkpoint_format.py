"""What a checkpoint names instead of holding it: rows of clients and vectors of windows that are in files."""

import pathlib
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from fedwin.residence.offloaded_windows import SnapshotRing
from fedwin.residence.record_store import Manifest, Snapshot
from fedwin.window import LARGEST

# Where rows and vectors are, in the folder of a seed's checkpoints.
ROWS = "rows"
WINDOWS = "windows"
_TABLE = "table"


def ring_folder(ring: str) -> str:
    """Returns where a ring is, below the folder of a seed's checkpoints; `ring` is its name as checkpoints have it."""
    return f"{WINDOWS}/{re.sub('[^A-Za-z0-9_.-]', '_', ring)}"


def _marks(leaves: dict[str, Any]) -> dict[str, Manifest]:
    heads = [name.removesuffix(".digest") for name in leaves if name.endswith(".digest")]
    of = lambda head: [f"{head}.{field}" for field in Manifest._fields]
    return {head: Manifest(*(leaves[name] for name in of(head))) for head in heads if leaves.keys() >= set(of(head))}


def has_rows(leaves: dict[str, Any]) -> bool:
    """Whether leaves name rows of clients in a file."""
    return _TABLE in _marks(leaves)


def has_rings(leaves: dict[str, Any]) -> bool:
    """Whether leaves name a ring in a file."""
    return any(head != _TABLE for head in _marks(leaves))


def read_on_access(leaves: dict[str, Any], directory: pathlib.Path) -> dict[str, Any]:
    """Returns the leaves with what is in files, and read from them on access, in place of what names it.

    Args:
      leaves: of a checkpoint.
      directory: the folder of a seed's checkpoints.

    Raises:
      UserError: files are missing, or differ from what they were.
    """
    kept = dict(leaves)
    for head, mark in _marks(leaves).items():
        for field in Manifest._fields:
            if (head, field) != (_TABLE, "total"):
                del kept[f"{head}.{field}"]
        if head == _TABLE:
            kept |= Snapshot(directory / ROWS, mark).leaves()
        else:
            generation = Snapshot(directory / ring_folder(head), mark)
            (vector,) = generation.layout.fields
            kept[head] = SnapshotRing((int(mark.total), vector.shape[0]), vector.dtype, generation)
    return kept


Leaves = dict[str, np.ndarray]


def resize_rings(leaves: Leaves, shapes: dict[str, tuple[int, ...]]) -> Leaves:
    """Returns leaves whose rings have as many slots as a run gives them, wherever that loses nothing.

    A window or a delay that is longer than its run has room for that run's models only. As long as none has left it,
    vector number n lies in slot n - 1, whatever the length.

    Args:
      leaves: of a checkpoint, by name.
      shapes: name -> shape, as the run has them.
    """
    changed: Leaves = {}
    for name, ring in leaves.items():
        head, _, field = name.rpartition("ring")
        wanted = shapes.get(name, ring.shape)
        if field or f"{head}count" not in leaves or wanted == ring.shape or wanted[1:] != ring.shape[1:]:
            continue
        kept = min(len(ring), wanted[0])
        # A delay line has a slot per round that it spans; a window has one more, for the vector that leaves it.
        room = kept if f"{head}oldest" in leaves else kept - 1
        if leaves[f"{head}count"] > room:
            continue
        if isinstance(ring, SnapshotRing):
            changed[name] = ring.with_length(wanted[0])
        else:
            changed[name] = np.zeros(wanted, ring.dtype)
            changed[name][:kept] = ring[:kept]
    return leaves | changed


def _spoiled(leaves: Leaves) -> Leaves:
    """Format 2 -> 3: windows know when they last took in a vector that has no mean, and leave it out of their sums."""
    more: Leaves = {}
    for name, ring in leaves.items():
        head, _, field = name.rpartition("ring")
        if field or f"{head}sums.0" not in leaves:
            continue
        count, slots = int(leaves[f"{head}count"]), len(ring)
        # Vector number n (from 1) lies in slot (n - 1) % slots.
        numbers = range(max(count - slots, 0) + 1, count + 1)
        bad = [n for n in numbers if not np.linalg.norm(ring[(n - 1) % slots].astype(np.float64)) <= LARGEST]
        more[f"{head}spoiled"] = np.asarray(max(bad, default=0), np.int32)
    return leaves | more


# Format -> what makes its leaves those of the next one; formats without an entry differ in nothing that is stored.
MIGRATIONS: dict[int, Callable[[Leaves], Leaves]] = {2: _spoiled}


def migrate(leaves: Leaves, written: int, wanted: int) -> Leaves:
    """Returns the leaves of a checkpoint of format `written` as format `wanted` has them."""
    for number in range(written, wanted):
        leaves = MIGRATIONS.get(number, lambda same: same)(leaves)
    return leaves
