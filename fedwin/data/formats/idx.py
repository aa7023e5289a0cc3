"""Reads IDX files, the format of MNIST, http://yann.lecun.com/exdb/mnist.

An IDX file has two zero bytes, a type byte, the number of dimensions, the dimensions as big-endian int32, and the
values, big-endian. Data sets come as four of them: images and labels of training and test examples.
"""

import math
import pathlib
from typing import NamedTuple

import numpy as np

from fedwin.data.dataset import Examples
from fedwin.data.formats import checksums, files, values
from fedwin.errors import UserError

TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def parse(blob: bytes, where) -> np.ndarray:
    """Decodes an IDX file.

    Args:
      blob: its content.
      where: the file, for error messages.

    Returns:
      The array, in native byte order.

    Raises:
      UserError: wrong magic number, or fewer or more bytes than the header announces.

    Example:
      >>> parse(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 8, 9]), "labels").tolist()
      [7, 8, 9]
    """
    dtype, ndim, shape = header(blob, where)
    start = 4 + 4 * ndim
    expected = start + dtype.itemsize * math.prod(shape)
    if len(shape) < ndim or min(shape) < 0 or len(blob) != expected:
        size = f"at least {len(blob)}" if len(blob) > expected >= 0 else len(blob)
        raise UserError(f"{where}: {size} bytes, but the header says {expected}; it is truncated or damaged.")
    return np.frombuffer(blob, dtype, offset=start).reshape(shape).astype(dtype.newbyteorder("="))


def header(blob: bytes, where) -> tuple[np.dtype, int, tuple[int, ...]]:
    """Decodes the header of an IDX file.

    Args:
      blob: its first bytes.
      where: the file, for error messages.

    Returns:
      (type, number of dimensions, shape); the shape of a truncated header is ().

    Raises:
      UserError: wrong magic number.
    """
    if len(blob) < 4 or blob[:2] != b"\0\0" or blob[2] not in TYPES or not 1 <= blob[3] <= 8:
        raise UserError(f"{where}: wrong magic number {blob[:4].hex() or '(empty)'}; it is not an IDX file.")
    ndim = blob[3]
    shape = tuple(int(n) for n in np.frombuffer(blob[4 : 4 + 4 * ndim], ">i4")) if len(blob) >= 4 + 4 * ndim else ()
    return np.dtype(TYPES[blob[2]]), ndim, shape


def announced_size(head: bytes) -> int:
    """Returns the size in bytes that the first bytes of an IDX file announce; 0 if they are not such a header."""
    try:
        dtype, ndim, shape = header(head, "")
    except UserError:
        return 0
    return 4 + 4 * ndim + dtype.itemsize * math.prod(shape) if shape and min(shape) >= 0 else 0


def load(where) -> np.ndarray:
    """Reads an IDX file, compressed or not, and no more of it than its header announces.

    Args:
      where: the file.

    Returns:
      The array, in native byte order.

    Raises:
      UserError: as for `parse`, or the file can't be read.
    """
    return parse(files.read(where, announced_size), where)


def file_names(prefix: str = "", test: str = "t10k", kind: str = "ubyte") -> tuple[str, str, str, str]:
    """Returns the file names of training images, training labels, test images and test labels.

    Args:
      prefix: prefix of all names.
      test: name of the test split.
      kind: type in the names of images.
    """
    images, labels = f"images-idx3-{kind}", "labels-idx1-ubyte"
    return f"{prefix}train-{images}", f"{prefix}train-{labels}", f"{prefix}{test}-{images}", f"{prefix}{test}-{labels}"


class IdxFile(NamedTuple):
    """An IDX file.

    Attributes:
      where: the file, for error messages.
      entry: its path, or its decompressed bytes.
    """

    where: pathlib.Path
    entry: pathlib.Path | bytes


def find(dataset: str, data_dir, patterns, wanted, source: str) -> dict[str, IdxFile]:
    """Finds IDX files that belong together, in one folder or archive.

    Args:
      dataset: name of the data set, for error messages.
      data_dir: the folder to search.
      patterns: patterns of folder names, as in files.folders.
      wanted: names of the files.
      source: URL for a download.

    Returns:
      name -> IdxFile.

    Raises:
      UserError: not found; a broken archive in the folder is named.
    """
    broken = None
    for folder in files.folders(data_dir, *patterns):
        if folder.is_dir() and all(files.locate(folder, name) for name in wanted):
            return {name: IdxFile(path, path) for name in wanted if (path := files.locate(folder, name))}
        for archive in [folder] if folder.is_file() else sorted(folder.glob("*.zip")):
            try:
                members = files.entries(archive, set(wanted).__contains__, announced_size)
            except UserError as error:  # possibly unrelated, so an error only if nothing else is found
                broken = broken or error
                continue
            if all(name in members for name in wanted):
                return {name: IdxFile(archive / name, members[name]) for name in wanted}
    absent = files.missing(dataset, data_dir, f"{', '.join(wanted)} (plain, .gz, .xz or .bz2)", source)
    raise files.Missing(f"{absent} Perhaps {broken}") if broken else absent


def read(dataset: str, data_dir, patterns, wanted, source: str) -> tuple[dict[str, np.ndarray], dict[str, IdxFile]]:
    """Reads IDX files of images and labels; arguments as for `find`.

    Returns:
      (name -> array, name -> IdxFile).

    Raises:
      UserError: files that are missing or damaged, or different numbers of images and labels.
    """
    idx_files = find(dataset, data_dir, patterns, wanted, source)
    arrays = {name: parse(files.content(entry, announced_size), where) for name, (where, entry) in idx_files.items()}
    for images, labels in (wanted[:2], wanted[2:4]):
        for name, dimensions in ((images, 3), (labels, 1)):
            if len(shape := arrays[name].shape) != dimensions:
                where = idx_files[name].where
                raise UserError(f"{where}: an array of shape {shape}; {dimensions} dimensions are needed.")
        if len(arrays[images]) != len(arrays[labels]):
            raise UserError(
                f"{idx_files[labels].where}: {len(arrays[labels])} labels for {len(arrays[images])} images in {images}."
            )
    return arrays, idx_files


def pack(arrays, idx_files, wanted, num_classes: int) -> tuple[Examples, Examples]:
    """Converts arrays to features: images uint8 with a channel axis, labels int32 in 0..num_classes - 1.

    Args:
      arrays: name -> array, as from `read`.
      idx_files: name -> IdxFile, likewise.
      wanted: names of training images, training labels, test images and test labels.
      num_classes: number of classes C.

    Returns:
      (training features, test features).

    Raises:
      UserError: pixels or labels out of range.
    """

    def checked(name, convert, bound):
        with values.naming(idx_files[name].where):
            return convert(arrays[name], bound)

    def side(images, labels) -> Examples:
        return {
            "x": checked(images, values.pixels, arrays[images].shape[1:])[..., None],
            "y": checked(labels, values.labels, num_classes),
        }

    return side(*wanted[:2]), side(*wanted[2:4])


def verify(idx_files: dict[str, IdxFile], dataset: str) -> bool:
    """Returns whether every file has its published checksum; warns 'unverified' about those that differ."""
    stored = lambda entry: entry if isinstance(entry, pathlib.Path) else None
    return checksums.verify(
        dataset,
        [(where.name, stored(entry), files.content(entry, announced_size)) for where, entry in idx_files.values()],
    )
