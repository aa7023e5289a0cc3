"""Reads IDX files, the format of MNIST, http://yann.lecun.com/exdb/mnist.

An IDX file has two zero bytes, a type byte, the number of dimensions, the dimensions as big-endian int32, and the
values, big-endian. Data sets come as four of them: images and labels of training and test examples.
"""

import math
import pathlib
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from fedwin.data.dataset import Examples
from fedwin.data.formats import checksums, files, values
from fedwin.errors import UserError

TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def parse(blob: bytes, where) -> np.ndarray:
    """Decodes an IDX file to an array in native byte order; `where` is the file.

    Raises:
      UserError: wrong magic number, or another number of bytes than the header announces.
    """
    if len(blob) < 4 or blob[:2] != b"\0\0" or blob[2] not in TYPES or not blob[3]:
        raise UserError(f"{where}: wrong magic number {blob[:4].hex() or '(empty)'}; it is not an IDX file.")
    dtype, start = np.dtype(TYPES[blob[2]]), 4 + 4 * blob[3]
    shape = tuple(int.from_bytes(blob[at : at + 4], "big", signed=True) for at in range(4, start, 4))
    expected = start + dtype.itemsize * math.prod(shape)
    if min(shape) < 0 or len(blob) != expected:
        raise UserError(f"{where}: {len(blob)} bytes, but the header says {expected}; it is truncated or damaged.")
    return np.frombuffer(blob, dtype, offset=start).reshape(shape).astype(dtype.newbyteorder("="))


def load(path) -> np.ndarray:
    """Reads an IDX file, compressed or not, as for `parse`."""
    return parse(files.read(path), path)


def file_names(prefix: str = "", test: str = "t10k", kind: str = "ubyte") -> tuple[str, str, str, str]:
    """Returns the file names of training images, training labels, test images and test labels."""
    images, labels = f"images-idx3-{kind}", "labels-idx1-ubyte"
    return f"{prefix}train-{images}", f"{prefix}train-{labels}", f"{prefix}{test}-{images}", f"{prefix}{test}-{labels}"


class IdxFile(NamedTuple):
    """A decoded IDX file."""

    where: pathlib.Path
    stored: pathlib.Path | None
    blob: bytes
    array: np.ndarray

    def checked(self, convert: Callable, bound) -> np.ndarray:
        """Applies a function of `values` to the array; its errors name the file."""
        with files.reading(self.where):
            return convert(self.array, bound)


def read(dataset: str, data_dir, patterns: Iterable[str], wanted: tuple[str, ...], source: str) -> dict[str, IdxFile]:
    """Finds and reads IDX files of images and labels that belong together, in one folder or zip archive.

    Args:
      wanted: names of training images, training labels, test images, test labels, and possibly further files.

    Raises:
      UserError: files that are missing or damaged, or different numbers of images and labels.
    """
    found = {}
    for name, (where, entry) in _find(dataset, data_dir, patterns, wanted, source).items():
        blob = files.content(entry)
        found[name] = IdxFile(where, None if isinstance(entry, bytes) else entry, blob, parse(blob, where))
    for images, labels in (wanted[:2], wanted[2:4]):
        for name, dimensions in ((images, 3), (labels, 1)):
            if len(shape := found[name].array.shape) != dimensions:
                raise UserError(f"{found[name].where}: an array of shape {shape}; it must have {dimensions} axes.")
        counts = len(found[labels].array), len(found[images].array)
        if counts[0] != counts[1]:
            raise UserError(f"{found[labels].where}: {counts[0]} labels for {counts[1]} images in {images}.")
    return found


def _find(dataset: str, data_dir, patterns, wanted, source: str) -> dict[str, tuple[pathlib.Path, files.Entry]]:
    """Returns name -> (place for error messages, path or bytes); a broken archive is named if nothing is found."""
    broken = None
    for folder in files.folders(data_dir, *patterns):
        if folder.is_dir() and (paths := files.locate_all([folder], *wanted)):
            return {name: (path, path) for name, path in zip(wanted, paths)}
        for archive in [folder] if folder.is_file() else sorted(folder.glob("*.zip")):
            try:
                members = files.entries(archive, set(wanted).__contains__)
            except UserError as error:  # possibly unrelated, so an error only if nothing else is found
                broken = broken or error
                continue
            if all(name in members for name in wanted):
                return {name: (archive / name, members[name]) for name in wanted}
    absent = files.missing(dataset, data_dir, f"{', '.join(wanted)} (plain, .gz, .xz or .bz2)", source)
    raise files.Missing(f"{absent} Perhaps {broken}") if broken else absent


def pack(found: dict[str, IdxFile], wanted, num_classes: int) -> tuple[Examples, Examples]:
    """Converts (training, test) arrays to features: images uint8 [N, H, W, 1], labels int32 in 0..num_classes - 1.

    `found` and `wanted` are as for `read`, which returns the former.

    Raises:
      UserError: pixels or labels out of range.
    """

    def side(images: str, labels: str) -> Examples:
        x = found[images].checked(values.pixels, found[images].array.shape[1:])
        return {"x": x[..., None], "y": found[labels].checked(values.labels, num_classes)}

    return side(*wanted[:2]), side(*wanted[2:4])


def verify(found: Iterable[IdxFile], dataset: str) -> bool:
    """Returns whether every file has its published checksum; warns 'unverified' about those that differ."""
    return checksums.verify(dataset, [(file.where.name, file.stored, file.blob) for file in found])
