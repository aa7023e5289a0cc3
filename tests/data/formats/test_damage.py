"""Damaged files of every reader: a data set, or one line that names the file."""

import io
import random
import warnings

import numpy as np
import pytest
import scipy.io

from fedwin import data
from fedwin.errors import UserError
from tests.data.files import (
    characters,
    picture,
    taken,
    tarred,
    write_cache,
    write_cifar100,
    write_fedbn,
    write_femnist,
    write_idx,
    write_landmarks,
    write_pacs,
    zipped,
)
from tests.data.sources.test_cifar100_pam import write_tff_clients

CASES = 6


def mutate(blob: bytes, rng: random.Random) -> bytes:
    """Cuts the file, or changes one to four of its bytes, headers as often as all the rest."""
    content = bytearray(blob)
    if rng.random() < 0.25:
        return bytes(content[: rng.randrange(len(content))])
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(content)) if rng.random() < 0.5 else rng.randrange(min(80, len(content)))
        content[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
    return bytes(content)


def write_npz(folder):
    x, y = np.zeros((4, 3, 3), np.float32), np.arange(4)
    np.savez(folder / "data.npz", x_train=x, y_train=y, x_test=x, y_test=y)


def write_matlab(folder):
    for name in ("train", "test"):
        stream = io.BytesIO()
        content = {"X": np.zeros((32, 32, 3, 6), np.uint8), "y": np.arange(6)[:, None] % 10}
        scipy.io.savemat(stream, content, do_compression=name == "test")
        (folder / f"{name}_32x32.mat").write_bytes(stream.getvalue())


def write_images(folder):
    for name, kind in (("a.png", "PNG"), ("b.jpg", "JPEG"), ("c.bmp", "BMP"), ("d.webp", "WEBP")):
        (folder / name).write_bytes(picture((90, 0, 9), (9, 7), kind))
    (folder / "train.csv").write_text("user_id,image_id,class\nu,a,0\nu,b,1\nv,c,1\n")
    (folder / "test.csv").write_text("image_id,class\nd,0\n")


def packed(write, name, mode=None):
    def write_archive(folder):
        write(folder)
        members = taken(folder)
        zipped(folder / name, members) if mode is None else tarred(folder / name, members, mode)

    return write_archive


# Reader -> (data set, writer of its files).
READERS = {
    "idx": ("mnist", lambda folder: write_idx(folder, suffix="")),
    "compressed": ("mnist", write_idx),
    "zip": ("mnist", packed(write_idx, "mnist.zip")),
    "npz": ("npz", write_npz),
    "pickles": ("digit5:domains=mnist", lambda folder: write_fedbn(folder, ("MNIST",))),
    "matlab": ("digit5:domains=svhn,per_domain=3", write_matlab),
    "binary": ("cifar100", lambda folder: write_cifar100(folder, 5)),
    "tar": ("cifar100", packed(lambda folder: write_cifar100(folder, 5), "cifar-100-binary.tar.gz", "w:gz")),
    "images": ("image_folder:size=4,resize=5", write_images),
    "lists": ("landmarks:size=4,resize=5", write_landmarks),
    "image tar": ("pacs:size=4,resize=5", packed(lambda folder: write_pacs(folder, 2), "pacs.tar", "w")),
    "fedjax": ("femnist:form=fedjax", lambda folder: write_femnist(folder, "fedjax", characters(), characters())),
    "leaf": ("femnist:form=leaf", lambda folder: write_femnist(folder, "leaf", characters(), characters())),
    "tff": ("cifar100_pam", write_tff_clients),
    "cache": ("digits", lambda folder: write_cache(data.load("digits"), "digits", folder)),
}


@pytest.mark.parametrize("reader", READERS)
def test_a_damaged_file_is_one_line(tmp_path, reader):
    choice, write = READERS[reader]
    outcomes = set()
    for number in range(CASES):
        rng, folder = random.Random(f"{reader} {number}"), tmp_path / str(number)
        folder.mkdir()
        write(folder)
        path = rng.choice(sorted(path for path in folder.glob("**/*") if path.is_file()))
        path.write_bytes(mutate(path.read_bytes(), rng))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                dataset = data.load(choice, folder)
                for features in (dataset.train, dataset.test):
                    for value in features.values():
                        np.asarray(value)
            except UserError as error:
                outcomes.add(type(error))
                message = str(error)
                assert "\n" not in message and len(message) < 1500, message
                assert str(folder) in message or choice.partition(":")[0] in message, message
    assert outcomes or reader == "cache"  # a cache is rebuilt, and the digits need no files
