"""The files of CIFAR-10 and CIFAR-100: binary records or Python pickles, in folders or archives.

Binary records are 1 (CIFAR-10) or 2 (CIFAR-100: coarse, fine) label bytes and 3,072 pixel bytes: the R, G and B planes,
each row by row. Python files are pickles with the same planes.
"""

import concurrent.futures
import pathlib
import warnings
from typing import NamedTuple

import numpy as np

from fedwin.data.formats import checksums, files, pickles, values
from fedwin.errors import UserError

URL = "https://www.cs.toronto.edu/~kriz/"


class Layout(NamedTuple):
    """Where the files of one of the two sets are.

    Attributes:
      folders: patterns of folder names.
      archives: file names.
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
    "cifar10": Layout(
        ("cifar10", "cifar-10", "cifar10[-_]*", "cifar-10[-_]*"),
        ("cifar-10-binary.tar.gz", "cifar-10-python.tar.gz"),
        tuple(f"data_batch_{i}" for i in range(1, 6)),
        "test_batch",
        {"y": b"labels"},
        (10,),
    ),
    "cifar100": Layout(
        ("cifar100*", "cifar-100*"),
        ("cifar-100-binary.tar.gz", "cifar-100-python.tar.gz"),
        ("train",),
        "test",
        {"coarse": b"coarse_labels", "fine": b"fine_labels"},
        (20, 100),
    ),
}


def images(planes: np.ndarray) -> np.ndarray:
    """Turns uint8 rows of 3,072 planar bytes into NHWC images."""
    return np.ascontiguousarray(planes.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))


def from_binary(blob: bytes, columns, where) -> dict[str, np.ndarray]:
    """Returns label columns and 'x' of the binary records in `blob`, however many."""
    width = len(columns) + 3072
    if not blob or len(blob) % width:
        raise UserError(f"{where}: {len(blob)} bytes are not a whole number of records of {width}; it is truncated.")
    records = np.frombuffer(blob, np.uint8).reshape(-1, width)
    return {**dict(zip(columns, records.T)), "x": images(records[:, len(columns) :])}


def from_pickle(blob: bytes, columns, where, md5: str | None) -> dict[str, np.ndarray]:
    """Returns label columns and 'x' of a pickle; its md5 must be right before it is opened."""
    found = files.file_digest(blob)
    if found != md5:
        raise UserError(
            f"{where}: md5 {found}, not {md5}; a pickle from elsewhere is not opened, because it could run code. "
            f"Fetch the original or use the binary version from {URL}."
        )
    content = pickles.loads(blob, where)
    with values.naming(f"{where}: the pickle has not the keys and shapes of CIFAR"):
        labels = {name: content[key] for name, key in columns.items()}
        return {**labels, "x": images(values.pixels(content[b"data"], (3072,)))}


def candidate_locations(name: str, data_dir):
    """Yields (place, plain name -> file or bytes) where the set may be: folders first, archives after."""
    layout = LAYOUTS[name]
    wanted = {part + suffix for part in (*layout.train, layout.test) for suffix in ("", ".bin")}
    found = files.folders(data_dir, *layout.folders)
    for folder in found:
        if folder.is_dir():
            yield folder, files.entries(folder, wanted.__contains__)
    for folder in found:
        for archive in [folder] if folder.is_file() else [folder / file for file in layout.archives]:
            if archive.is_file():
                yield archive, files.entries(archive, wanted.__contains__)


def find(name: str, data_dir):
    """Returns (place, plain name -> file or bytes, training parts, test part) of the set; None without it."""
    layout = LAYOUTS[name]
    for place, entry in candidate_locations(name, data_dir):
        for suffix in (".bin", ""):
            train = [part + suffix for part in layout.train if part + suffix in entry]
            if train and layout.test + suffix in entry:
                return place, entry, train, layout.test + suffix
    return None


def read(name: str, data_dir) -> tuple[dict, dict, bool]:
    """Returns the training and test features and whether every checksum was right.

    Raises:
      UserError: nothing found, truncated, a label out of range, or a pickle with a wrong checksum.
    """
    layout = LAYOUTS[name]
    found = find(name, data_dir)
    if found is None:
        wanted = f"{layout.archives[0]}, {layout.archives[1]} or their files ({layout.train[0]}.bin, {layout.test}.bin)"
        raise files.missing(name, data_dir, wanted, URL)
    place, entry, train, test = found
    absent = sorted(set(layout.train) - {part.removesuffix(".bin") for part in train})
    if absent:
        suffix = ".bin" if test.endswith(".bin") else ""
        names = ", ".join(part + suffix for part in absent)
        warnings.warn(f"{place}: {names} missing; the training set is incomplete.", stacklevel=2)
    return decode_parts(name, place, entry, train, test)


def decode_parts(name: str, place: pathlib.Path, entry: dict, train: list[str], test: str) -> tuple[dict, dict, bool]:
    """Decodes the members named, several at a time, and joins the training parts."""
    columns, classes = LAYOUTS[name].labels, LAYOUTS[name].classes

    def part(member):
        blob, where = files.content(entry[member]), place / member
        if member.endswith(".bin"):
            right, features = checksums.matches(name, member, blob), from_binary(blob, columns, where)
        else:
            right, features = True, from_pickle(blob, columns, where, checksums.published_checksum(name, member)[1])
        for column, num_classes in zip(columns, classes):
            with values.naming(where):
                features[column] = values.labels(features[column], num_classes)
            if features[column].shape != features["x"].shape[:1]:
                raise UserError(f"{where}: {len(features['x'])} images, but labels of shape {features[column].shape}.")
        return features, right

    with concurrent.futures.ThreadPoolExecutor(2) as pool:  # decompression releases the interpreter lock
        decoded = list(pool.map(part, [*train, test]))
    verified = all(right for _, right in decoded) and len(train) == len(LAYOUTS[name].train)
    if not verified and place.is_file() and checksums.matches(name, place.name, place):
        verified = True
    if not verified:
        warnings.warn(f"{place}: unverified, the checksums are not those of the original {name} files.", stacklevel=4)
    with values.naming(place):
        joined = {key: np.concatenate([features[key] for features, _ in decoded[:-1]]) for key in decoded[0][0]}
    return joined, decoded[-1][0], verified
