"""Whether the arrays of a packed cache are still what was written: a size and a checksum for each file, in its meta.

Opening a cache compares sizes, and the contents of small files; large ones are compared when they are read whole.
"""

import json
import os
import pathlib
import zlib

import numpy as np

from fedwin.errors import UserError

# Files up to this size are read when the cache is opened: a few milliseconds each.
SMALL_BYTES = 8 << 20
CHUNK = 1 << 22
# Files whose contents were right: (path, modification time, size). The seeds of a run share their examples.
_confirmed: set[tuple[str, int, int]] = set()


class Damaged(UserError):
    """A cache is not what was written: something that its original files can mend."""


def crc32(path) -> str:
    """Returns the CRC-32 of a file's bytes, eight hexadecimal digits."""
    value = 0
    with open(path, "rb") as stream:
        while chunk := stream.read(CHUNK):
            value = zlib.crc32(chunk, value)
    return f"{value:08x}"


def measured(folder: pathlib.Path) -> dict[str, dict]:
    """Returns file name -> size and checksum of every array in a folder, as a cache's meta holds them."""
    return {path.name: {"bytes": path.stat().st_size, "crc32": crc32(path)} for path in sorted(folder.glob("*.npy"))}


def check_opened(folder: pathlib.Path, arrays: dict[str, dict]) -> None:
    """Checks the sizes of a cache's files, and the contents of the small ones.

    Args:
      folder: the cache.
      arrays: what its meta says, as from `measured`.

    Raises:
      Damaged: naming the first file that is missing or changed.
    """
    for name, known in arrays.items():
        path = folder / name
        try:
            size = path.stat().st_size
        except OSError as error:
            raise Damaged(f"{path}: not a complete cache, the file is missing.") from error
        if size != known["bytes"]:
            raise Damaged(f"{path}: not a complete cache, {size:,} bytes instead of {known['bytes']:,}.")
        if size <= SMALL_BYTES:
            check_content(path, known["crc32"])


def check_content(path: pathlib.Path, crc: str) -> None:
    """Raises Damaged where a file's bytes are not those that were written; each file is read once per process."""
    try:
        status = os.stat(path)
        key = (str(path), status.st_mtime_ns, status.st_size)
        if key in _confirmed:
            return
        found = crc32(path)
    except OSError as error:
        raise Damaged(f"{path}: cannot be read ({error.strerror or error}).") from error
    if found != crc:
        raise Damaged(f"{path}: damaged, its checksum is {found} instead of {crc}.")
    _confirmed.add(key)


def check_arrays(features: dict) -> None:
    """Reads the memory maps among some features whole and compares them with what was written to their cache.

    Call it where a data set is read whole anyway; arrays in memory, images that are decoded when they are used, and
    caches of the format without checksums pass.

    Args:
      features: name -> array.

    Raises:
      Damaged: naming the file, and how to restore it.
    """
    for value in features.values():
        if not isinstance(value, np.memmap) or not value.filename:
            continue
        path = pathlib.Path(value.filename)
        try:
            known = json.loads((path.parent / "meta.json").read_text())["arrays"][path.name]["crc32"]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        try:
            check_content(path, known)
        except Damaged as error:
            raise Damaged(f"{error} Prepare the data set again with --force.") from error
