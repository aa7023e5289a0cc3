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

from fedwin.data.dataset import Dataset
from fedwin.data.formats import checksums, files, pickles, values
from fedwin.data.registries import DATASETS
from fedwin.data.sources import cifar_names
from fedwin.errors import UserError

URL = "https://www.cs.toronto.edu/~kriz/"

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
    classes: number of classes of each.
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


def places(name: str, data_dir):
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
    """Returns (place, plain name -> file or bytes, training parts, test part) of the set, None where it is not there."""
    layout = LAYOUTS[name]
    for place, entry in places(name, data_dir):
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
        absent = ", ".join(part + suffix for part in absent)
        warnings.warn(f"{place}: {absent} missing; the training set is incomplete.", stacklevel=2)
    return parts(name, place, entry, train, test)


def parts(name: str, place: pathlib.Path, entry: dict, train: list[str], test: str) -> tuple[dict, dict, bool]:
    """Decodes the members named, several at a time, and joins the training parts."""
    columns, classes = LAYOUTS[name].labels, LAYOUTS[name].classes

    def part(member):
        blob, where = files.content(entry[member]), place / member
        if member.endswith(".bin"):
            right, features = checksums.matches(name, member, blob), from_binary(blob, columns, where)
        else:
            right, features = True, from_pickle(blob, columns, where, checksums.known(name, member)[1])
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


def normalisation(constants: str):
    """Returns (mean, std) by name."""
    if constants not in CONSTANTS:
        raise UserError(f"constants={constants}; they are {', '.join(CONSTANTS)}.")
    return CONSTANTS[constants]


CIFAR10 = {
    "cifar-10-binary.tar.gz": ("sha256", "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"),
    "cifar-10-python.tar.gz": ("md5", "c58f30108f718f92721af3b95e74349a"),
    "data_batch_1": ("md5", "c99cafc152244af753f735de768cd75f"),
    "data_batch_2": ("md5", "d4bba439e000b95fd0a9bffe97cbabec"),
    "data_batch_3": ("md5", "54ebc095f3ab1f0389bbae665268c751"),
    "data_batch_4": ("md5", "634d18415352ddfa80567beed471001a"),
    "data_batch_5": ("md5", "482c414d41f54cd18b22e5b47cb7c3cb"),
    "test_batch": ("md5", "40351d587109b95175f43aff81a1287e"),
    "data_batch_1.bin": ("sha256", "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"),
    "data_batch_2.bin": ("sha256", "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"),
    "data_batch_3.bin": ("sha256", "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"),
    "data_batch_4.bin": ("sha256", "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"),
    "data_batch_5.bin": ("sha256", "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"),
    "test_batch.bin": ("sha256", "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"),
}


@DATASETS.register(
    "cifar10",
    title="CIFAR-10",
    how="downloads; binary or Python archive, or its files, also .xz/.gz",
    sizes="by partition, or a published split (`csv:path=`) / 50,000 / 10,000",
    prepared="62 s (from .xz)",
    cache="176 MiB",
    downloads=(URL + "cifar-10-binary.tar.gz",),
    checksums=CIFAR10,
)
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


# No checksum of the binary members is published, only that of the whole archive.
CIFAR100 = {
    "cifar-100-binary.tar.gz": ("sha256", "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec"),
    "cifar-100-python.tar.gz": ("md5", "eb9058c3a382ffc7106e4002c42a8d85"),
    "train": ("md5", "16019d7e3df5f24257cddd939b257f8d"),
    "test": ("md5", "f0ef6b0ae62326f3e7ffdfab6717acfc"),
}


@DATASETS.register(
    "cifar100",
    title="CIFAR-100",
    flag="`cifar100`, `cifar100:label=coarse`",
    how="downloads",
    sizes="by partition / 50,000 / 10,000",
    prepared="11 s for a subset of 6,000 + 1,000",
    cache="21 MiB for that",
    downloads=(URL + "cifar-100-binary.tar.gz",),
    checksums=CIFAR100,
)
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
