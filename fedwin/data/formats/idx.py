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


def read(dataset: str, data_dir, patterns: Iterable[str], wanted: tuple[str, ...], source: str) -> dict[str, IdxFile]:
    """Finds and reads IDX files of images and labels that belong together, in one folder or zip archive.

    Args:
      wanted: names of training images, training labels, test images, test labels, and possibly further files.

    Raises:
      UserError: files that are missing or damaged, or different numbers of images and labels.
    """
    entries = files.search(files.folders(data_dir, *patterns), wanted)
    if entries is None:
        raise files.missing(dataset, data_dir, f"{', '.join(wanted)} (plain, .gz, .xz or .bz2)", source)
    found = {}
    for name, (where, entry) in entries.items():
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


def pack(
    found: dict[str, IdxFile], wanted, num_classes: int, convert: Callable = np.asarray, first: int = 0
) -> tuple[Examples, Examples]:
    """Converts (training, test) arrays to features: images uint8 [N, H, W, 1], labels int32 in 0..num_classes - 1.

    Args:
      found: as from `read`, for `wanted`.
      convert: function from the images in a file to pixels.
      first: label of class 0 in the files.

    Raises:
      UserError: pixels or labels out of range.
    """

    def side(images: str, labels: str) -> Examples:
        with files.reading(found[images].where):
            pixels = convert(found[images].array)
            x = values.pixels(pixels, pixels.shape[1:])[..., None]
        with files.reading(found[labels].where):
            return {"x": x, "y": values.labels(found[labels].array - np.int32(first), num_classes)}

    return side(*wanted[:2]), side(*wanted[2:4])


def verify(found: Iterable[IdxFile], dataset: str) -> bool:
    """Returns whether every file has its published checksum; warns 'unverified' about those that differ."""
    return checksums.verify(dataset, [(file.where.name, file.stored, file.blob) for file in found])
