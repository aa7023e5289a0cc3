"""The format of checkpoints: rows and windows in files, lengths of ring buffers, migrations of old formats."""

import json
import pathlib
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from fedwin.files import read_bytes, sealed
from fedwin.residence.file_store import Manifest, Snapshot
from fedwin.residence.offloaded_windows import SnapshotRing
from fedwin.window import LARGEST

# Name -> array of a state, or a Lazy array (residence.blockwise) that is read on access.
Leaves = dict[str, Any]

# Folders of client rows and of windows, inside the folder of a seed's checkpoints.
ROWS = "rows"
WINDOWS = "windows"
_TABLE = "table"


def read_about(checkpoint: pathlib.Path) -> dict[str, Any] | None:
    """Returns the JSON data of a checkpoint without opening its arrays; None if it is missing, damaged or not sealed.

    Args:
      checkpoint: its folder.
    """
    try:
        about = json.loads(read_bytes(checkpoint / "about" / "metadata"))
        return about if "seal" in about and about == sealed(about) else None
    except (OSError, ValueError, TypeError):
        return None


def ring_folder(ring: str) -> str:
    """Returns the folder of a ring buffer, relative to the seed's checkpoints; `ring` is its name in checkpoints."""
    return f"{WINDOWS}/{re.sub('[^A-Za-z0-9_.-]', '_', ring)}"


def _manifests(leaves: Leaves) -> dict[str, Manifest]:
    """Returns name of a leaf in a file -> its manifest, whose fields are leaves of the checkpoint."""
    heads = [name.removesuffix(".digest") for name in leaves if name.endswith(".digest")]
    of = lambda head: [f"{head}.{field}" for field in Manifest._fields]
    return {head: Manifest(*(leaves[name] for name in of(head))) for head in heads if leaves.keys() >= set(of(head))}


def has_rows(leaves: Leaves) -> bool:
    """Returns whether the client rows of a checkpoint are in a file."""
    return _TABLE in _manifests(leaves)


def has_rings(leaves: Leaves) -> bool:
    """Returns whether any ring buffer of a checkpoint is in a file."""
    return any(head != _TABLE for head in _manifests(leaves))


def read_on_access(leaves: Leaves, directory: pathlib.Path) -> Leaves:
    """Returns the leaves with arrays that are read from files on access, in place of the manifests of these files.

    Args:
      leaves: leaves of a checkpoint.
      directory: the folder of the seed's checkpoints.

    Raises:
      UserError: files are missing or have changed.
    """
    resolved = dict(leaves)
    for head, manifest in _manifests(leaves).items():
        for field in Manifest._fields:
            if (head, field) != (_TABLE, "total"):
                del resolved[f"{head}.{field}"]
        if head == _TABLE:
            resolved |= Snapshot(directory / ROWS, manifest).leaves()
        else:
            snapshot = Snapshot(directory / ring_folder(head), manifest)
            (vector,) = snapshot.layout.fields
            resolved[head] = SnapshotRing((int(manifest.total), vector.shape[0]), vector.dtype, snapshot)
    return resolved


def resize_rings(leaves: Leaves, shapes: dict[str, tuple[int, ...]]) -> Leaves:
    """Resizes ring buffers restored from a run with another number of rounds, where that loses nothing.

    A window or a delay that is longer than its run has slots for that run's models only. While none has left it, vector
    number n is in slot n - 1 for every length.

    Args:
      leaves: leaves of a checkpoint.
      shapes: name -> shape of the run's own leaves.
    """
    changed: Leaves = {}
    for name, ring in leaves.items():
        head, _, field = name.rpartition("ring")
        wanted = shapes.get(name, ring.shape)
        if field or f"{head}count" not in leaves or wanted == ring.shape or wanted[1:] != ring.shape[1:]:
            continue
        common = min(len(ring), wanted[0])
        # A delay line has one slot per round of delay; a window has one more, for the vector that leaves it.
        capacity = common if f"{head}oldest" in leaves else common - 1
        if leaves[f"{head}count"] > capacity:
            continue
        if isinstance(ring, SnapshotRing):
            changed[name] = ring.with_length(wanted[0])
        else:
            changed[name] = np.zeros(wanted, ring.dtype)
            changed[name][:common] = ring[:common]
    return leaves | changed


def _add_last_nonfinite(leaves: Leaves) -> Leaves:
    """Format 2 -> 3: windows record the number of their last non-finite vector, which their sums leave out."""
    added: Leaves = {}
    for name, ring in leaves.items():
        head, _, field = name.rpartition("ring")
        if field or f"{head}sums.0" not in leaves:
            continue
        count, slots = int(leaves[f"{head}count"]), len(ring)
        # Vector number n (from 1) is in slot (n - 1) % slots.
        numbers = range(max(count - slots, 0) + 1, count + 1)
        nonfinite = [n for n in numbers if not np.linalg.norm(ring[(n - 1) % slots].astype(np.float64)) <= LARGEST]
        added[f"{head}spoiled"] = np.asarray(max(nonfinite, default=0), np.int32)
    return leaves | added


# Format -> function that converts its leaves to the next format; for other formats the leaves are the same.
MIGRATIONS: dict[int, Callable[[Leaves], Leaves]] = {2: _add_last_nonfinite}


def migrate(leaves: Leaves, written: int, wanted: int) -> Leaves:
    """Converts the leaves of a checkpoint to another format.

    Args:
      leaves: its leaves.
      written: its format.
      wanted: the format to return.
    """
    for number in range(written, wanted):
        leaves = MIGRATIONS.get(number, lambda unchanged: unchanged)(leaves)
    return leaves
