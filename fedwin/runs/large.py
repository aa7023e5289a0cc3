"""The large arrays of a checkpoint: a file for each, written block by block beside what orbax writes."""

import dataclasses
import math
import pathlib
from typing import Any

import numpy as np
import orbax.checkpoint as ocp

from fedwin.residence.blocks import nbytes, write
from fedwin.residence.lazy import Stored

# Arrays of more bytes have files of their own: orbax would hold each of them up to three times.
LARGE_BYTES = 4 << 20
# The folder of a checkpoint that holds them.
LARGE = "large"


def is_large(array) -> bool:
    """Whether an array has a file of its own."""
    return nbytes(array) > LARGE_BYTES


def _file(directory, number: int) -> pathlib.Path:
    return pathlib.Path(directory) / f"{number}.bin"


def described(arrays: dict[str, Any]) -> dict[str, Any]:
    """Returns, as JSON, the names of arrays in the order of their files, with shapes and dtypes."""
    return {name: [list(arrays[name].shape), np.dtype(arrays[name].dtype).name] for name in sorted(arrays)}


def stored(checkpoint, said: dict[str, Any]) -> dict[str, Stored]:
    """Returns the large arrays of a checkpoint, unread.

    Args:
      checkpoint: its directory.
      said: what `described` said of them.

    Raises:
      OSError: a file is missing or has another length.
    """
    found = {}
    for number, name in enumerate(sorted(said)):
        shape, dtype = tuple(said[name][0]), np.dtype(said[name][1])
        path = _file(pathlib.Path(checkpoint) / LARGE, number)
        if path.stat().st_size != math.prod(shape) * dtype.itemsize:
            raise OSError(f"{path} has another length")
        found[name] = Stored(path, shape, dtype)
    return found


class LargeHandler(ocp.CheckpointHandler):
    """Writes arrays into the folder that orbax gives it, and renames when all is written."""

    def save(self, directory, args: "LargeSave") -> None:  # type: ignore[override]
        """Writes the arrays.

        Args:
          directory: an empty folder.
          args: what to write.
        """
        for number, name in enumerate(sorted(args.item)):
            write(_file(directory, number), args.item[name])

    def restore(self, directory, args: Any = None) -> None:  # type: ignore[override]
        """Reads nothing: `stored` knows where everything is."""


@ocp.args.register_with_handler(LargeHandler, for_save=True, for_restore=True)
@dataclasses.dataclass
class LargeSave(ocp.args.CheckpointArgs):
    """What LargeHandler saves.

    Attributes:
      item: name -> array.
    """

    item: dict[str, Any]
