"""CIFAR-10 and CIFAR-100 from the original archives, https://www.cs.toronto.edu/~kriz/cifar.html.

Binary records are 1 (CIFAR-10) or 2 (CIFAR-100: coarse, fine) label bytes and 3,072 pixel bytes: the R, G and B planes,
each row by row. Python files are pickles with the same planes. Training images keep the order of the archive, to which
published splits refer.
"""

import concurrent.futures
import pathlib
import warnings
from typing import NamedTuple

import numpy as np

from fedwin.data import cifar_names, files, pickles
from fedwin.data.catalog import DATASETS
from fedwin.data.dataset import Dataset
from fedwin.errors import UserError

URL = "https://www.cs.toronto.edu/~kriz/"

# Checksums of the decoded members: md5 of the pickles, sha256 of the binary files.
CHECKSUMS = {
    "cifar10": {
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
        "test_batch": "40351d587109b95175f43aff81a1287e",
        "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
        "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
        "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
        "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
        "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
        "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
    },
    "cifar100": {
        "train": "16019d7e3df5f24257cddd939b257f8d",
        "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
    },
}
# No checksum of the members of this archive is published, only that of the whole.
CIFAR100_BINARY = "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec"

# Per-channel (mean, std): those of the window-averaging and heavy-ball papers' code, and those of IMA's.
CONSTANTS = {
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    "cifar100": ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
    "ima": ((0.491, 0.482, 0.447), (0.247, 0.243, 0.262)),
}


class Layout(NamedTuple):
    """Where the files of one of the two sets are.

    folders: patterns of folder names; archives: file names; train, test: names of the pickles (binary: with .bin).
    labels: names of the label columns, in the order of the binary record and as keys of the pickles.
    """

    folders: tuple[str, ...]
    archives: tuple[str, ...]
    train: tuple[str, ...]
    test: str
    labels: dict[str, bytes]


LAYOUTS = {
    "cifar10": Layout(
        ("cifar10", "cifar-10", "cifar10[-_]*", "cifar-10[-_]*"),
        ("cifar-10-binary.tar.gz", "cifar-10-python.tar.gz"),
        tuple(f"data_batch_{i}" for i in range(1, 6)),
        "test_batch",
        {"y": b"labels"},
    ),
    "cifar100": Layout(
        ("cifar100*", "cifar-100*"),
        ("cifar-100-binary.tar.gz", "cifar-100-python.tar.gz"),
        ("train",),
        "test",
        {"coarse": b"coarse_labels", "fine": b"fine_labels"},
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
    labels = {name: records[:, i].astype(np.int32) for i, name in enumerate(columns)}
    return {**labels, "x": images(records[:, len(columns) :])}


def from_pickle(blob: bytes, columns, where, md5: str | None) -> dict[str, np.ndarray]:
    """Returns label columns and 'x' of a pickle; its md5 must be right before it is opened."""
    found = files.digest(blob)
    if found != md5:
        raise UserError(
            f"{where}: md5 {found}, not {md5}; a pickle from elsewhere is not opened, because it could run code. "
            f"Fetch the original or use the binary version from {URL}."
        )
    content = pickles.loads(blob, where)
    try:
        labels = {name: np.asarray(content[key], np.int32) for name, key in columns.items()}
        return {**labels, "x": images(np.asarray(content[b"data"], np.uint8))}
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{where}: the pickle has not the keys and shapes of CIFAR ({error}).")


def places(name: str, data_dir):
    """Yields (place, plain name -> file or bytes) where the set may be: folders first, archives after."""
    layout = LAYOUTS[name]
    found = files.folders(data_dir, *layout.folders)
    for folder in found:
        if folder.is_dir():
            yield folder, files.entries(folder)
    for folder in found:
        for archive in [folder] if folder.is_file() else [folder / file for file in layout.archives]:
            if archive.is_file():
                yield archive, files.entries(archive)


def read(name: str, data_dir) -> tuple[dict, dict, bool]:
    """Returns the training and test features and whether every checksum was right.

    Raises:
      UserError: nothing found, truncated, or a pickle with a wrong checksum.
    """
    layout = LAYOUTS[name]
    for place, entry in places(name, data_dir):
        for suffix in (".bin", ""):
            train = [part + suffix for part in layout.train if part + suffix in entry]
            if train and layout.test + suffix in entry:
                if train != [part + suffix for part in layout.train]:
                    absent = sorted({part + suffix for part in layout.train} - set(train))
                    warnings.warn(
                        f"{place}: {', '.join(absent)} missing; the training set is incomplete.", stacklevel=2
                    )
                return parts(name, place, entry, train, layout.test + suffix)
    wanted = f"{layout.archives[0]}, {layout.archives[1]} or their files ({layout.train[0]}.bin, {layout.test}.bin)"
    raise files.missing(name, data_dir, wanted, URL)


def parts(name: str, place: pathlib.Path, entry: dict, train: list[str], test: str) -> tuple[dict, dict, bool]:
    """Decodes the members named, several at a time, and joins the training parts."""
    columns = LAYOUTS[name].labels

    def part(member):
        blob, where = files.content(entry[member]), place / member
        expected = CHECKSUMS[name].get(member)
        if not member.endswith(".bin"):
            return from_pickle(blob, columns, where, expected), True
        return from_binary(blob, columns, where), expected is not None and files.digest(blob, "sha256") == expected

    with concurrent.futures.ThreadPoolExecutor(2) as pool:  # decompression releases the interpreter lock
        decoded = list(pool.map(part, [*train, test]))
    verified = all(right for _, right in decoded) and len(train) == len(LAYOUTS[name].train)
    if not verified and name == "cifar100" and place.is_file():
        verified = files.digest(place, "sha256") == CIFAR100_BINARY
    if not verified:
        warnings.warn(f"{place}: unverified, the checksums are not those of the original {name} files.", stacklevel=4)
    joined = {key: np.concatenate([features[key] for features, _ in decoded[:-1]]) for key in decoded[0][0]}
    return joined, decoded[-1][0], verified


def normalisation(constants: str):
    """Returns (mean, std) by name."""
    if constants not in CONSTANTS:
        raise UserError(f"constants={constants}; they are {', '.join(CONSTANTS)}.")
    return CONSTANTS[constants]


@DATASETS.register("cifar10")
def cifar10(data_dir, *, constants: str = "cifar10") -> Dataset:
    """CIFAR-10, Krizhevsky 2009: x uint8 [N, 32, 32, 3], y in 0..9; 50,000 and 10,000 images in the full set.

    Args:
      data_dir: a folder with the binary or the python archive, with its unpacked files (plain, .gz, .xz or .bz2), or a
        parent of it.
      constants: normalisation, 'cifar10', 'cifar100' or 'ima'.

    Raises:
      UserError: nothing found, truncated files, pickles whose md5 is wrong.
    """
    mean, std = normalisation(constants)
    train, test, verified = read("cifar10", data_dir)
    return Dataset("cifar10", train, test, 10, mean=mean, std=std, class_names=cifar_names.CIFAR10, verified=verified)


@DATASETS.register("cifar100")
def cifar100(data_dir, *, label: str = "fine", constants: str = "cifar100") -> Dataset:
    """CIFAR-100, Krizhevsky 2009: x uint8 [N, 32, 32, 3], y in 0..99 (fine) or 0..19 (coarse).

    The other label stays as the feature 'coarse' or 'fine', which Pachinko allocation reads.

    Args:
      data_dir: as for cifar10.
      label: 'fine' or 'coarse'.
      constants: normalisation, 'cifar100', 'cifar10' (what FedJAX and the heavy-ball code use) or 'ima'.
    """
    if label not in ("fine", "coarse"):
        raise UserError(f"cifar100: label={label}; it is fine or coarse.")
    mean, std = normalisation(constants)
    train, test, verified = read("cifar100", data_dir)
    names = cifar_names.FINE if label == "fine" else cifar_names.COARSE
    rename = lambda features: {("y" if key == label else key): value for key, value in features.items()}
    return Dataset(
        "cifar100", rename(train), rename(test), len(names), mean=mean, std=std, class_names=names, verified=verified
    )
