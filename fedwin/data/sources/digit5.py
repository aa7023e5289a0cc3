"""Digit Five: digits in five styles, from FedBN's archive or from the five original sets.

Archive: Li et al. 2021, https://arxiv.org/abs/2102.07623, `digit_dataset.zip`: per domain
`partitions/train_part0..9.pkl` and `test.pkl`, each a pickled pair (images, labels). Every domain contributes as many
training images as USPS has, 7,438.
"""

import pathlib
import re

import numpy as np

from fedwin.data.dataset import Dataset
from fedwin.data.formats import files, idx, pickles, values
from fedwin.data.reader import pillow
from fedwin.data.registries import DATASETS
from fedwin.data.rng import generator
from fedwin.data.sources import mnist
from fedwin.errors import UserError

DOMAINS = ("mnist", "svhn", "usps", "synthdigits", "mnist_m")
FOLDERS = {"mnist": "MNIST", "svhn": "SVHN", "usps": "USPS", "synthdigits": "SynthDigits", "mnist_m": "MNIST_M"}
SIZE = 28
# What is used of the archive, which holds more.
MEMBER = re.compile(r"(partitions/train_part\d|/test)\.pkl$")
# Domains that write the digit 0 as 10.
TENS = ("svhn", "synthdigits")


def unified(images: np.ndarray, where) -> np.ndarray:
    """Returns uint8 [N, 28, 28, 3]: grey becomes three equal channels, sides are scaled to 28 pixels (bilinear).

    Raises:
      UserError: not images, NaN, or values that are neither bytes nor in [0, 1].
    """
    with values.naming(where):
        images = np.asarray(images)
    if images.dtype.kind not in "biuf":
        raise UserError(f"{where}: pixels are {images.dtype}, not numbers.")
    if images.ndim == 4 and images.shape[-1] not in (1, 3) and images.shape[1] in (1, 3):
        images = images.transpose(0, 2, 3, 1)
    images = images[..., None] if images.ndim == 3 else images
    if images.ndim != 4 or images.shape[-1] not in (1, 3) or not len(images):
        raise UserError(f"{where}: an array of shape {images.shape} is not a set of grey or colour images.")
    if images.dtype != np.uint8:
        top = images.max()
        if not (images.min() >= 0 and top <= 255):  # false for NaN as well
            raise UserError(f"{where}: pixels are NaN or outside 0..255.")
        images = np.rint(images * (255 if top <= 1 else 1)).astype(np.uint8)
    if images.shape[1:3] != (SIZE, SIZE):
        image_module = pillow()
        scale = lambda image: image_module.fromarray(image.squeeze()).resize(
            (SIZE, SIZE), image_module.Resampling.BILINEAR
        )
        images = np.stack([np.asarray(scale(image)).reshape(SIZE, SIZE, -1) for image in images])
    return np.repeat(images, 3, -1) if images.shape[-1] == 1 else np.ascontiguousarray(images)


def pair(images, labels, where, domain: str = "") -> tuple[np.ndarray, np.ndarray]:
    """Checks and converts one set of images and labels; SVHN, and what is made after it, writes the digit 0 as 10."""
    with values.naming(where):
        labels = values.labels(np.asarray(labels).reshape(-1), 11 if domain in TENS else 10)
    labels = np.where(labels == 10, 0, labels).astype(np.int32)
    images = unified(images, where)
    if len(images) != len(labels):
        raise UserError(f"{where}: {len(labels)} labels for {len(images)} images.")
    return images, labels


def from_pickle(blob: bytes, where, domain: str = "") -> tuple[np.ndarray, np.ndarray]:
    """Returns the pair in a pickle of FedBN's archive; nothing but arrays can be built from it."""
    content = pickles.loads(blob, where)
    if not isinstance(content, (tuple, list)) or len(content) != 2:
        raise UserError(f"{where}: not a pair of images and labels.")
    return pair(content[0], content[1], where, domain)


def archive_domain(read, names: set[str], domain: str, parts: int):
    """Returns ((train), (test)) of a domain in the archive layout, or None where it is not there."""
    prefix = next(
        (
            name[: -len("partitions/train_part0.pkl")]
            for name in names
            if name.endswith(f"{FOLDERS[domain]}/partitions/train_part0.pkl")
        ),
        None,
    )
    if prefix is None:
        return None
    wanted = [f"{prefix}partitions/train_part{i}.pkl" for i in range(parts)]
    for name in [*wanted, f"{prefix}test.pkl"]:
        if name not in names:
            raise UserError(f"digit5: {name} is missing from the archive; fetch it again.")
    *trained, test = [from_pickle(read(name), name, domain) for name in [*wanted, f"{prefix}test.pkl"]]
    return tuple(map(np.concatenate, zip(*trained))), test


def layout(place: pathlib.Path, domains):
    """Returns (read, names) of FedBN's archive, packed or not; of a packed one only the domains named are decoded."""
    if place.is_file():
        used = tuple(f"{FOLDERS[domain]}/" for domain in domains)
        held = files.members(place, lambda name: MEMBER.search(name) and any(folder in name for folder in used))
        return held.__getitem__, set(held)
    names = {path.relative_to(place).as_posix() for path in place.glob("**/*.pkl")}
    return lambda name: files.read(place / name), names


def matlab(folders, names) -> list[tuple]:
    """Returns (images, labels, file) of SVHN-like .mat files: X [rows, columns, 3, N], y [N]."""
    from scipy.io import loadmat

    found = []
    for name in names:
        path = next((folder / name for folder in folders if (folder / name).is_file()), None)
        if path is not None:
            try:
                content = loadmat(path)
                found.append((content["X"].transpose(3, 0, 1, 2), content["y"], path))
            except Exception as error:  # damaged files raise many kinds
                raise UserError(f"{path}: not a readable MATLAB file with X and y ({error}).") from error
    return found


def idx_pairs(folders, names) -> list[tuple]:
    """Returns (images, labels, file) of IDX files of images and labels."""
    found = []
    for images, labels in (names[:2], names[2:]):
        folder = next((f for f in folders if files.locate(f, images) and files.locate(f, labels)), None)
        if folder is not None:
            path, other = files.locate(folder, images), files.locate(folder, labels)
            grey = idx.parse(files.read(path), path)
            if grey.dtype == np.int16:
                grey = mnist.usps_pixels(grey, path)
            found.append((grey, idx.parse(files.read(other), other), path))
    return found


def listed_images(folders) -> list[tuple]:
    """Returns (images, labels, list) of MNIST-M: `mnist_m_{train,test}` image folders with `*_labels.txt` lists."""
    found = []
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
            try:
                images.append(np.asarray(pillow().open(image).convert("RGB")))
            except Exception as error:  # damaged files raise many kinds
                raise UserError(f"{image}: not a decodable image ({error}).") from error
            if images[-1].shape != images[0].shape:
                raise UserError(f"{image}: {images[-1].shape[:2]} pixels, but {images[0].shape[:2]} before.")
            labels.append(int(label))
        if not images:
            raise UserError(f"{path}: it lists no image.")
        found.append((np.stack(images), np.array(labels), path))
    return found


def original_domain(data_dir, domain: str):
    """Returns all images and labels of an original set, pooled, or None where it is not there."""
    if domain == "mnist":
        found = idx_pairs(files.folders(data_dir, "mnist"), mnist.names())
    elif domain == "usps":
        found = idx_pairs(
            files.folders(data_dir, "usps*"), tuple(f"usps-{n}" for n in mnist.names("", "test", "short"))
        )
    elif domain == "svhn":
        found = matlab(files.folders(data_dir, "svhn*"), ("train_32x32.mat", "test_32x32.mat"))
    elif domain == "synthdigits":
        found = matlab(files.folders(data_dir, "synth*"), ("synth_train_32x32.mat", "synth_test_32x32.mat"))
    else:
        found = listed_images(files.folders(data_dir, "mnist_m*", "mnist-m*", "mnistm*"))
    if not found:
        return None
    pairs = [pair(images, labels, where, domain) for images, labels, where in found]
    return tuple(map(np.concatenate, zip(*pairs)))


def stratified(labels: np.ndarray, limit: int, rng) -> tuple[np.ndarray, np.ndarray]:
    """Returns rows: ceil(N / 5) for testing in the shares of the classes, `limit` of the others for training."""
    order = rng.permutation(len(labels))
    share = 0.2 * np.bincount(labels, minlength=10)
    held = np.floor(share).astype(np.int64)
    # Largest remainders first, so that the sum is exact.
    held[np.argsort(held - share, kind="stable")[: -(-len(labels) // 5) - held.sum()]] += 1
    test = np.sort(np.concatenate([order[labels[order] == c][: held[c]] for c in range(10)]))
    return rng.permutation(np.setdiff1d(order, test))[:limit], test


@DATASETS.register(
    "digit5",
    title="Digit Five",
    how="by hand: FedBN's `digit_dataset.zip`, or any of the five originals (`:domains=mnist+usps`)",
    sizes="by domain / 7,438 per domain / a fifth of each",
    prepared="6.0 s (mnist+usps: 14,876 / 15,860)",
    cache="69 MiB",
    by_hand="digit_dataset.zip linked from https://github.com/med-air/FedBN",
)
def digit5(
    data_dir, *, domains: str = "+".join(DOMAINS), parts: int = 10, per_domain: int = 7438, split_seed: int = 0
) -> Dataset:
    """Digit Five: x uint8 [N, 28, 28, 3], y in 0..9, 'domain' in the order of `domains`.

    From FedBN's `digit_dataset.zip` (packed or not) as it is; a domain that is not in one comes from its original
    files: all its labelled images pooled, a stratified fifth for testing, `per_domain` of the others for training.

    Args:
      domains: names joined by '+', of mnist, svhn, usps, synthdigits and mnist_m.
      parts: training parts of the archive to use, 1..10.
      per_domain: training images of a domain taken from original files.
      split_seed: seed of that split.
    """
    chosen = str(domains).split("+")
    for name in chosen:
        if name not in DOMAINS or chosen.count(name) > 1:
            raise UserError(f"digit5: domains={domains}; join different ones of {', '.join(DOMAINS)} by '+'.")
    if not 1 <= parts <= 10 or per_domain < 1:
        raise UserError(f"digit5: parts={parts}, per_domain={per_domain}; give 1 to 10 parts and at least 1 image.")
    places = []
    for folder in files.folders(data_dir, "digit*"):
        archive = folder if folder.is_file() else folder / "digit_dataset.zip"
        places += [archive] if archive.is_file() else []
        places += [folder] if folder.is_dir() and any((folder / name).is_dir() for name in FOLDERS.values()) else []
    layouts = [layout(place, chosen) for place in places]
    sides: list[list] = [[], []]
    for number, domain in enumerate(chosen):
        found = next((held for read, names in layouts if (held := archive_domain(read, names, domain, parts))), None)
        if found is None:
            pooled = original_domain(data_dir, domain)
            if pooled is None:
                raise files.missing(
                    "digit5",
                    data_dir,
                    f"{domain} (FedBN's digit_dataset.zip or the original files)",
                    "https://github.com/med-air/FedBN",
                )
            rows = stratified(pooled[1], per_domain, generator(split_seed, "digit5", domain))
            found = [tuple(values[part] for values in pooled) for part in rows]
        for side, (x, y) in zip(sides, found):
            side.append((x, y, np.full(len(y), number, np.int32)))
    join = lambda side: dict(zip(("x", "y", "domain"), map(np.concatenate, zip(*side))))
    return Dataset(
        "digit5",
        join(sides[0]),
        join(sides[1]),
        10,
        mean=(0.5, 0.5, 0.5),
        std=(0.5, 0.5, 0.5),
        class_names=mnist.DIGITS,
        domain_names=tuple(chosen),
        verified=False,
    )
