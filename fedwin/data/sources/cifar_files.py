"""Reads the files of CIFAR-10 and CIFAR-100: binary records or Python pickles, in folders or archives.

A binary record has 1 (CIFAR-10) or 2 (CIFAR-100: coarse, fine) label bytes and 3,072 pixel bytes: the R, G and B
planes, row by row. Python files are pickles with the same planes.
"""

import concurrent.futures
import pathlib
import warnings
from typing import NamedTuple

import numpy as np

from fedwin.data.dataset import Examples
from fedwin.data.formats import checksums, files, pickles, values
from fedwin.errors import UserError

URL = "https://www.cs.toronto.edu/~kriz/"


class FileNames(NamedTuple):
    """Names of the files of one of the two data sets.

    Attributes:
      archives: names of the archives of binary files and of pickles.
      train: names of the training pickles; binary files have the suffix .bin.
      labels: label column -> its key in the pickles, in the order of the binary record.
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


def read(name: str, data_dir) -> tuple[Examples, Examples, bool]:
    """Reads 'cifar10' or 'cifar100' below data_dir: (training features, test features, whether checksums are right).

    Raises:
      UserError: missing or truncated files, a label out of range, or a pickle with a wrong checksum.
    """
    layout = LAYOUTS[name]
    folders = files.folders(data_dir, *layout.folders)
    for suffix, archive in zip((".bin", ""), layout.archives):
        members = [part + suffix for part in (*layout.train, layout.test)]
        if found := files.search(folders, members, archive):
            return _decode(name, found)
    members = [f"{part}.bin" for part in (*layout.train, layout.test)]
    wanted = f"{layout.archives[0]}, {layout.archives[1]} or all of their files ({', '.join(members)})"
    raise files.missing(name, data_dir, wanted, URL)


def _decode(name: str, found: dict[str, tuple[pathlib.Path, files.Entry]]) -> tuple[Examples, Examples, bool]:
    """Decodes the files of a data set, the test file last, in parallel, and concatenates the training parts."""
    columns, classes = LAYOUTS[name].labels, LAYOUTS[name].classes

    def part(member: str) -> tuple[Examples, bool]:
        where, entry = found[member]
        blob = files.content(entry)
        if member.endswith(".bin"):
            is_verified, features = checksums.matches(name, member, blob), from_binary(blob, list(columns), where)
        else:
            md5 = checksums.published_checksums(name).get(member, ("md5", None))[1]
            is_verified, features = True, from_pickle(blob, columns, where, md5)
        with files.reading(where):
            labels = {key: values.labels(features[key], count) for key, count in zip(columns, classes)}
        for label in labels.values():
            if label.shape != features["x"].shape[:1]:
                raise UserError(f"{where}: {len(features['x'])} images, but labels of shape {label.shape}.")
        return features | labels, is_verified

    with concurrent.futures.ThreadPoolExecutor(2) as pool:  # decompression releases the interpreter lock
        decoded = list(pool.map(part, found))
    location = next(iter(found.values()))[0].parent
    verified = all(is_verified for _, is_verified in decoded)
    if not verified and location.is_file() and checksums.matches(name, location.name, location):
        verified = True
    if not verified:
        warnings.warn(
            f"{location}: unverified, the checksums are not those of the original {name} files.", stacklevel=4
        )
    *train, test = [features for features, _ in decoded]
    return {key: np.concatenate([features[key] for features in train]) for key in test}, test, verified


def from_binary(blob: bytes, columns: list[str], where) -> Examples:
    """Decodes binary records to label `columns` and 'x'; `where` is the file.

    Raises:
      UserError: not a whole number of records.
    """
    width = len(columns) + 3072
    if not blob or len(blob) % width:
        raise UserError(f"{where}: {len(blob)} bytes are not a whole number of records of {width}; it is truncated.")
    records = np.frombuffer(blob, np.uint8).reshape(-1, width)
    return {**dict(zip(columns, records.T)), "x": images(records[:, len(columns) :])}


def from_pickle(blob: bytes, columns: dict[str, bytes], where, md5: str | None) -> Examples:
    """Decodes a pickle with the expected md5 to label columns (name -> its key) and 'x'; `where` is the file.

    Raises:
      UserError: wrong checksum, or other content.
    """
    actual = files.file_digest(blob)
    if actual != md5:
        raise UserError(
            f"{where}: md5 {actual}, not {md5}; pickles of other sources are not opened: fetch the original, or use "
            f"the binary version, from {URL}."
        )
    with files.reading(where, "the pickle does not have the keys and shapes of CIFAR"):
        content = pickles.loads(blob, where)
        labels = {name: content[key] for name, key in columns.items()}
        return {**labels, "x": images(values.pixels(content[b"data"], (3072,)))}


def images(planes: np.ndarray) -> np.ndarray:
    """Converts rows of 3,072 planar bytes, uint8 [N, 3072], to images [N, 32, 32, 3]."""
    return np.ascontiguousarray(planes.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
