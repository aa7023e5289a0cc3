"""Detects damaged caches by the seal of meta.json and by the size and checksum of every other file.

Opening a cache compares all sizes, and the checksums of small files; those of large files are compared when a file is
first read completely.
"""

import json
import os
import pathlib
import zlib

import numpy as np

from fedwin.errors import UserError
from fedwin.files import sealed

# Files up to this size are read when the cache is opened: a few milliseconds each.
SMALL_BYTES = 8 << 20
CHUNK = 1 << 22
# Files with the right checksum: (path, modification time, size). The seeds of a run share their examples.
_confirmed: set[tuple[str, int, int]] = set()


class DamagedCache(UserError):
    """A cache differs from what was written; it can be rebuilt from the original files."""


def crc32(path) -> str:
    """Returns the CRC-32 of a file as eight hexadecimal digits."""
    value = 0
    with open(path, "rb") as stream:
        while chunk := stream.read(CHUNK):
            value = zlib.crc32(chunk, value)
    return f"{value:08x}"


def array_checksums(folder: pathlib.Path) -> dict[str, dict]:
    """Returns file name -> size and checksum of every array in a folder, as stored in a cache's meta.json."""
    return {path.name: {"bytes": path.stat().st_size, "crc32": crc32(path)} for path in sorted(folder.glob("*.npy"))}


def check_seal(folder: pathlib.Path, meta: dict) -> None:
    """Checks that a cache's meta.json is what was written; caches from before the seal pass.

    Args:
      folder: the cache.
      meta: the content of its meta.json.

    Raises:
      DamagedCache: it has changed.
    """
    if "seal" in meta and sealed(meta)["seal"] != meta["seal"]:
        raise DamagedCache(f"{folder / 'meta.json'}: damaged, it has been changed since the cache was written.")


def check_cache_files(folder: pathlib.Path, arrays: dict[str, dict]) -> None:
    """Checks the sizes of a cache's files, and the checksums of the small ones.

    Args:
      folder: the cache.
      arrays: expected sizes and checksums, as from `array_checksums`.

    Raises:
      DamagedCache: naming the first file that is missing or has changed.
    """
    for name, expected in arrays.items():
        path = folder / name
        try:
            size = path.stat().st_size
        except OSError as error:
            raise DamagedCache(f"{path}: not a complete cache, the file is missing.") from error
        if size != expected["bytes"]:
            raise DamagedCache(f"{path}: not a complete cache, {size:,} bytes instead of {expected['bytes']:,}.")
        if size <= SMALL_BYTES:
            check_content(path, expected["crc32"])


def check_content(path: pathlib.Path, expected: str) -> None:
    """Checks the checksum of a file; a file is read only once per process.

    Args:
      path: the file.
      expected: its CRC-32 as eight hexadecimal digits.

    Raises:
      DamagedCache: the checksum differs, or the file can't be read.
    """
    try:
        status = os.stat(path)
        key = (str(path), status.st_mtime_ns, status.st_size)
        if key in _confirmed:
            return
        actual = crc32(path)
    except OSError as error:
        raise DamagedCache(f"{path}: cannot be read ({error.strerror or error}).") from error
    if actual != expected:
        raise DamagedCache(f"{path}: damaged, its checksum is {actual} instead of {expected}.")
    _confirmed.add(key)


def check_arrays(features: dict) -> None:
    """Checks the checksums of those features that are memory maps of a cache, by reading them completely.

    To be called before a data set is read completely anyway. Arrays in memory, images that are decoded on access, and
    caches of the format without checksums pass.

    Args:
      features: name -> array.

    Raises:
      DamagedCache: naming the file, and how to restore it.
    """
    for value in features.values():
        if not isinstance(value, np.memmap) or not value.filename:
            continue
        path = pathlib.Path(value.filename)
        try:
            expected = json.loads((path.parent / "meta.json").read_text())["arrays"][path.name]["crc32"]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        try:
            check_content(path, expected)
        except DamagedCache as error:
            raise DamagedCache(f"{error} Prepare the data set again with --force.") from error
