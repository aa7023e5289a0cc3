"""Reads the files of CIFAR-10 and CIFAR-100: binary records or Python pickles, in folders or archives.

A binary record has 1 (CIFAR-10) or 2 (CIFAR-100: coarse, fine) label bytes and 3,072 pixel bytes: the R, G and B
planes, row by row. Python files are pickles with the same planes.
"""

import concurrent.futures
import pathlib
import warnings
from typing import NamedTuple

import numpy as np

from fedwin.data.formats import checksums, files, pickles, values
from fedwin.errors import UserError

# The largest file, a pickle of CIFAR-100's training images, has 155 MB.
MOST_BYTES = 200_000_000
URL = "https://www.cs.toronto.edu/~kriz/"


class FileNames(NamedTuple):
    """Names of the files of one of the two data sets.

    Attributes:
      folders: patterns of folder names.
      archives: names of the archives.
      train: names of the training pickles; binary files have the suffix .bin.
      test: name of the test pickle, likewise.
      labels: label column -> its key in the pickles, in the order of the binary record.
      classes: number of classes of each column.
    """

    folders: tuple[str, ...]
    archives: tuple[str, ...]
    train: tuple[str, ...]
    test: str
    labels: dict[str, bytes]
    classes: tuple[int, ...]


LAYOUTS = {
    "cifar10": FileNames(
        ("cifar10", "cifar-10", "cifar10[-_]*", "cifar-10[-_]*"),
        ("cifar-10-binary.tar.gz", "cifar-10-python.tar.gz"),
        tuple(f"data_batch_{i}" for i in range(1, 6)),
        "test_batch",
        {"y": b"labels"},
        (10,),
    ),
    "cifar100": FileNames(
        ("cifar100*", "cifar-100*"),
        ("cifar-100-binary.tar.gz", "cifar-100-python.tar.gz"),
        ("train",),
        "test",
        {"coarse": b"coarse_labels", "fine": b"fine_labels"},
        (20, 100),
    ),
}


def read(name: str, data_dir) -> tuple[dict, dict, bool]:
    """Reads a data set; arguments as for `candidate_locations`.

    Returns:
      (training features, test features, whether all checksums are right).

    Raises:
      UserError: no files, truncated files, a label out of range, or a pickle with a wrong checksum.
    """
    layout = LAYOUTS[name]
    files_found = find(name, data_dir)
    if files_found is None:
        wanted = f"{layout.archives[0]}, {layout.archives[1]} or their files ({layout.train[0]}.bin, {layout.test}.bin)"
        raise files.missing(name, data_dir, wanted, URL)
    location, entries, train, test = files_found
    absent = sorted(set(layout.train) - {part.removesuffix(".bin") for part in train})
    if absent:
        suffix = ".bin" if test.endswith(".bin") else ""
        names = ", ".join(part + suffix for part in absent)
        warnings.warn(f"{location}: {names} missing; the training set is incomplete.", stacklevel=2)
    return decode_parts(name, location, entries, train, test)


def find(name: str, data_dir):
    """Finds the files of a data set; arguments as for `candidate_locations`.

    Returns:
      (folder or archive, plain name -> path or bytes, names of the training files, name of the test file), or None.
    """
    layout = LAYOUTS[name]
    for location, entries in candidate_locations(name, data_dir):
        for suffix in (".bin", ""):
            train = [part + suffix for part in layout.train if part + suffix in entries]
            if train and layout.test + suffix in entries:
                return location, entries, train, layout.test + suffix
    return None


def candidate_locations(name: str, data_dir):
    """Yields folders, then archives, that may contain a data set, with their files.

    Args:
      name: 'cifar10' or 'cifar100'.
      data_dir: the folder to search.

    Yields:
      (folder or archive, plain name -> path or bytes).
    """
    layout = LAYOUTS[name]
    wanted = {part + suffix for part in (*layout.train, layout.test) for suffix in ("", ".bin")}
    folders = files.folders(data_dir, *layout.folders)
    for folder in folders:
        if folder.is_dir():
            yield folder, files.entries(folder, wanted.__contains__)
    for folder in folders:
        for archive in [folder] if folder.is_file() else [folder / file for file in layout.archives]:
            if archive.is_file():
                yield archive, files.entries(archive, wanted.__contains__, lambda head: MOST_BYTES)


def decode_parts(
    name: str, location: pathlib.Path, entries: dict, train: list[str], test: str
) -> tuple[dict, dict, bool]:
    """Decodes the files of a data set in parallel, and concatenates the training parts.

    Args:
      name: 'cifar10' or 'cifar100'.
      location: their folder or archive.
      entries: plain name -> path or bytes.
      train: names of the training files.
      test: name of the test file.

    Returns:
      As `read`.
    """
    columns, classes = LAYOUTS[name].labels, LAYOUTS[name].classes

    def part(member):
        blob, where = files.content(entries[member], lambda head: MOST_BYTES), location / member
        if member.endswith(".bin"):
            is_verified, features = checksums.matches(name, member, blob), from_binary(blob, columns, where)
        else:
            is_verified, features = (
                True,
                from_pickle(blob, columns, where, checksums.published_checksum(name, member)[1]),
            )
        for column, num_classes in zip(columns, classes):
            with values.naming(where):
                features[column] = values.labels(features[column], num_classes)
            if features[column].shape != features["x"].shape[:1]:
                raise UserError(f"{where}: {len(features['x'])} images, but labels of shape {features[column].shape}.")
        return features, is_verified

    with concurrent.futures.ThreadPoolExecutor(2) as pool:  # decompression releases the interpreter lock
        decoded = list(pool.map(part, [*train, test]))
    verified = all(is_verified for _, is_verified in decoded) and len(train) == len(LAYOUTS[name].train)
    if not verified and location.is_file() and checksums.matches(name, location.name, location):
        verified = True
    if not verified:
        warnings.warn(
            f"{location}: unverified, the checksums are not those of the original {name} files.", stacklevel=4
        )
    with values.naming(location):
        joined = {key: np.concatenate([features[key] for features, _ in decoded[:-1]]) for key in decoded[0][0]}
    return joined, decoded[-1][0], verified


def from_binary(blob: bytes, columns, where) -> dict[str, np.ndarray]:
    """Decodes binary records.

    Args:
      blob: any number of records.
      columns: names of the label columns.
      where: the file, for error messages.

    Returns:
      Label columns and 'x'.

    Raises:
      UserError: not a whole number of records.
    """
    width = len(columns) + 3072
    if not blob or len(blob) % width:
        raise UserError(f"{where}: {len(blob)} bytes are not a whole number of records of {width}; it is truncated.")
    records = np.frombuffer(blob, np.uint8).reshape(-1, width)
    return {**dict(zip(columns, records.T)), "x": images(records[:, len(columns) :])}


def from_pickle(blob: bytes, columns, where, md5: str | None) -> dict[str, np.ndarray]:
    """Decodes a pickle, after checking its md5, because a pickle from another source could run code.

    Args:
      blob: the pickle.
      columns: label column -> its key in the pickle.
      where: the file, for error messages.
      md5: the expected checksum.

    Returns:
      Label columns and 'x'.

    Raises:
      UserError: wrong checksum, or other content.
    """
    actual = files.file_digest(blob)
    if actual != md5:
        raise UserError(
            f"{where}: md5 {actual}, not {md5}; a pickle from another source is not opened, because it could run code. "
            f"Fetch the original or use the binary version from {URL}."
        )
    content = pickles.loads(blob, where)
    with values.naming(f"{where}: the pickle does not have the keys and shapes of CIFAR"):
        labels = {name: content[key] for name, key in columns.items()}
        return {**labels, "x": images(values.pixels(content[b"data"], (3072,)))}


def images(planes: np.ndarray) -> np.ndarray:
    """Converts rows of 3,072 planar bytes, uint8 [N, 3072], to images [N, 32, 32, 3]."""
    return np.ascontiguousarray(planes.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
