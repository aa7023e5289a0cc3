"""Reads the files of Digit Five: FedBN's archive of pickled pairs (images, labels), and the five original data sets."""

import pathlib
import re
from collections.abc import Mapping

import numpy as np

from fedwin.data.example_source import decode_whole
from fedwin.data.formats import files, pickles, values
from fedwin.data.sources import mnist
from fedwin.errors import UserError

# Domain -> its folder in the archive.
FOLDERS = {"mnist": "MNIST", "svhn": "SVHN", "usps": "USPS", "synthdigits": "SynthDigits", "mnist_m": "MNIST_M"}
SIZE = 28
# Members of the archive that are used; it has more.
MEMBER = re.compile(r"(partitions/train_part\d|/test)\.pkl$")
# Domains in which the digit 0 may have the label 10.
TENS = ("svhn", "synthdigits")

# Images uint8 [N, 28, 28, 3] and labels int32 [N].
Pair = tuple[np.ndarray, np.ndarray]
# Place of FedBN's archive, and its files by their names in it.
Archive = tuple[pathlib.Path, Mapping[str, files.Entry]]


def archived_domain(archives: list[Archive], domain: str, parts: int) -> tuple[Pair, Pair] | None:
    """Returns (training pair, test pair) of a domain from its first `parts` training files; None without them.

    Raises:
      UserError: the domain is incomplete or damaged.
    """
    first = f"{FOLDERS[domain]}/partitions/train_part0.pkl"
    for location, entries in archives:
        for prefix in [name.removesuffix(first) for name in entries if name.endswith(first)]:
            folder = f"{prefix}{FOLDERS[domain]}"
            wanted = [*(f"{folder}/partitions/train_part{i}.pkl" for i in range(parts)), f"{folder}/test.pkl"]
            if absent := [name for name in wanted if name not in entries]:
                raise UserError(f"digit5: {location / absent[0]} is missing from the archive; fetch it again.")
            *train, test = [from_pickle(files.content(entries[name]), location / name, domain) for name in wanted]
            return _joined(train), test
    return None


def archives(data_dir, domains: list[str]) -> list[Archive]:
    """Finds FedBN's archive, packed or not; of a packed one only the given domains are decompressed."""
    found: list[Archive] = []
    used = tuple(f"{FOLDERS[domain]}/" for domain in domains)
    wanted = lambda name: MEMBER.search(name) and any(folder in name for folder in used)
    for folder in files.folders(data_dir, "digit*"):
        packed = folder if folder.is_file() else folder / "digit_dataset.zip"
        if packed.is_file():
            found.append((packed, files.members(packed, wanted)))
        if folder.is_dir() and any((folder / name).is_dir() for name in FOLDERS.values()):
            found.append((folder, {path.relative_to(folder).as_posix(): path for path in folder.glob("**/*.pkl")}))
    return found


def from_pickle(blob: bytes, where, domain: str = "") -> Pair:
    """Reads the pair in a pickle of FedBN's archive; arguments and result as for `check_pair`."""
    content = pickles.loads(blob, where)
    if not isinstance(content, (tuple, list)) or len(content) != 2:
        raise UserError(f"{where}: not a pair of images and labels.")
    return check_pair(content[0], content[1], where, domain)


def original_domain(data_dir, domain: str) -> Pair:
    """Returns all examples of an original data set below data_dir, training and test pooled; UserError if missing."""
    if domain in ("mnist", "usps"):
        pairs = idx_pairs(data_dir, domain)
    elif domain == "svhn":
        pairs = matlab(files.folders(data_dir, "svhn*"), ("train_32x32.mat", "test_32x32.mat"))
    elif domain == "synthdigits":
        pairs = matlab(files.folders(data_dir, "synth*"), ("synth_train_32x32.mat", "synth_test_32x32.mat"))
    else:
        pairs = listed_images(files.folders(data_dir, "mnist_m*", "mnist-m*", "mnistm*"))
    if not pairs:
        wanted = f"{domain} (FedBN's digit_dataset.zip or the original files)"
        raise files.missing("digit5", data_dir, wanted, "https://github.com/med-air/FedBN")
    return _joined([check_pair(images, labels, where, domain) for images, labels, where in pairs])


def _joined(pairs: list[Pair]) -> Pair:
    images, labels = map(np.concatenate, zip(*pairs))
    return images, labels


def idx_pairs(data_dir, name: str) -> list[tuple]:
    """Returns (images, labels, name) of the data set 'mnist' or 'usps', training and test."""
    try:
        dataset = {"mnist": mnist.mnist, "usps": mnist.usps}[name](data_dir)
    except files.Missing:
        return []
    return [(side["x"], side["y"], name) for side in (dataset.train, dataset.test)]


def matlab(folders: list[pathlib.Path], names: tuple[str, ...]) -> list[tuple]:
    """Returns (images, labels, file) of SVHN-like .mat files in the folders: X [rows, columns, 3, N], y [N]."""
    from scipy.io import loadmat

    pairs = []
    for name in names:
        path = next((folder / name for folder in folders if (folder / name).is_file()), None)
        if path is None:
            continue
        with files.reading(path, "not a readable MATLAB file with X and y"):
            content = loadmat(path, variable_names=("X", "y"))
            pairs.append((content["X"].transpose(3, 0, 1, 2), content["y"], path))
    return pairs


def listed_images(folders: list[pathlib.Path]) -> list[tuple]:
    """Returns (images, labels, list) of MNIST-M: `mnist_m_{train,test}` image folders with `*_labels.txt` lists."""
    pairs = []
    for side in ("train", "test"):
        path = next((p for folder in folders for p in folder.glob(f"**/mnist_m_{side}_labels.txt")), None)
        if path is None:
            continue
        images, labels = [], []
        for number, line in enumerate(files.read(path).decode("utf-8", "replace").splitlines(), 1):
            name, _, label = line.partition(" ")
            image = path.parent / f"mnist_m_{side}" / name
            if not label.strip().isdecimal():
                raise UserError(f"{path}, line {number}: '{line}' is not a file name and a digit.")
            if not image.is_file():
                raise UserError(f"{path}, line {number}: image {image} is missing.")
            images.append(decode_whole(str(image), 3))
            if images[-1].shape != images[0].shape:
                raise UserError(f"{image}: {images[-1].shape[:2]} pixels, but {images[0].shape[:2]} before.")
            labels.append(int(label))
        if not images:
            raise UserError(f"{path}: it lists no image.")
        pairs.append((np.stack(images), np.array(labels), path))
    return pairs


def check_pair(images, labels, where, domain: str = "") -> Pair:
    """Checks images, and labels in which SVHN and data sets made after it write the digit 0 as 10; `where` is the file.

    Raises:
      UserError: wrong images or labels, or different numbers of them.
    """
    with files.reading(where):
        labels = values.labels(np.asarray(labels).reshape(-1), 11 if domain in TENS else 10)
        images = np.asarray(images)
    labels = np.where(labels == 10, 0, labels).astype(np.int32)
    images = to_rgb28(images, where)
    if len(images) != len(labels):
        raise UserError(f"{where}: {len(labels)} labels for {len(images)} images.")
    return images, labels


def to_rgb28(images: np.ndarray, where) -> np.ndarray:
    """Converts images [N, H, W] or [N, H, W, 1 or 3] to uint8 [N, 28, 28, 3]: equal channels, scaled bilinearly.

    Raises:
      UserError: not images, NaN, or values that are neither bytes nor in [0, 1]; `where` is the file.
    """
    if images.dtype.kind not in "biuf":
        raise UserError(f"{where}: pixels are {images.dtype}, not numbers.")
    if images.ndim == 4 and images.shape[-1] not in (1, 3) and images.shape[1] in (1, 3):
        images = images.transpose(0, 2, 3, 1)
    images = images[..., None] if images.ndim == 3 else images
    if images.ndim != 4 or images.shape[-1] not in (1, 3) or not len(images):
        raise UserError(f"{where}: an array of shape {images.shape} is not a set of gray or color images.")
    if images.dtype != np.uint8:
        top = images.max()
        if not (images.min() >= 0 and top <= 255):  # false for NaN as well
            raise UserError(f"{where}: pixels are NaN or outside 0..255.")
        images = np.rint(images * (255 if top <= 1 else 1)).astype(np.uint8)
    if images.shape[1:3] != (SIZE, SIZE):
        from PIL import Image  # few runs need it

        scale = lambda image: Image.fromarray(image.squeeze()).resize((SIZE, SIZE), Image.Resampling.BILINEAR)
        images = np.stack([np.asarray(scale(image)).reshape(SIZE, SIZE, -1) for image in images])
    return np.repeat(images, 3, -1) if images.shape[-1] == 1 else np.ascontiguousarray(images)
