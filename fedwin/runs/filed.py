"""What a checkpoint names instead of holding it: rows of clients and vectors of windows that are in files."""

import pathlib
import re
from typing import Any

from fedwin.residence.generations import Generation, Mark
from fedwin.residence.ring_store import FiledRing

# Where rows and vectors are, in the folder of a seed's checkpoints.
ROWS = "rows"
WINDOWS = "windows"
_TABLE = "table"


def folder_of(ring: str) -> str:
    """Returns where a ring is, below the folder of a seed's checkpoints; `ring` is its name as checkpoints have it."""
    return f"{WINDOWS}/{re.sub('[^A-Za-z0-9_.-]', '_', ring)}"


def _marks(leaves: dict[str, Any]) -> dict[str, Mark]:
    heads = [name.removesuffix(".digest") for name in leaves if name.endswith(".digest")]
    of = lambda head: [f"{head}.{field}" for field in Mark._fields]
    return {head: Mark(*(leaves[name] for name in of(head))) for head in heads if leaves.keys() >= set(of(head))}


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
        for field in Mark._fields:
            if (head, field) != (_TABLE, "total"):
                del kept[f"{head}.{field}"]
        if head == _TABLE:
            kept |= Generation(directory / ROWS, mark).leaves()
        else:
            generation = Generation(directory / folder_of(head), mark)
            (vector,) = generation.layout.fields
            kept[head] = FiledRing((int(mark.total), vector.shape[0]), vector.dtype, generation)
    return kept
