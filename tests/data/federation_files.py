"""Writes federated data sets in their released formats."""

import tarfile

import numpy as np
import pytest

from fedwin.data.sources.cifar_names import PARENT
from tests.data.files import write_fedjax_sqlite, write_leaf, write_tff_sqlite

WRITERS = {"f2101_00": 3, "f0007_01": 2, "f2600_12": 4}


def characters(sizes=WRITERS, seed=0):
    """client -> (bytes of ink [n, 784], labels); files hold 1 - ink / 255."""
    rng = np.random.default_rng(seed)
    return {client: (rng.integers(0, 256, (n, 784), np.uint8), rng.integers(0, 62, n)) for client, n in sizes.items()}


def paper(ink) -> np.ndarray:
    return (1 - ink.astype(np.float32) / 255).astype(np.float32)


def write_femnist(folder, form, train, test):
    if form == "fedjax":
        for side, held in (("train", train), ("test", test)):
            content = {
                f"{k:016x}:{client}".encode(): {
                    "pixels": paper(ink).reshape(-1, 28, 28),
                    "label": label.astype(np.int32),
                }
                for k, (client, (ink, label)) in enumerate(held.items())
            }
            write_fedjax_sqlite(folder / f"federated_emnist_{side}.sqlite", content)
    elif form in ("tff", "tff_lzma"):
        splits = {
            f"all_{side}": {
                client: [{"pixels": paper(row), "label": np.array([y])} for row, y in zip(ink, label)]
                for client, (ink, label) in held.items()
            }
            for side, held in (("train", train), ("test", test))
        }
        name = "emnist_all.sqlite" + (".lzma" if form == "tff_lzma" else "")
        write_tff_sqlite(folder / name, splits, compress=form == "tff_lzma", scattered=True)
    elif form == "hdf5":
        h5py = pytest.importorskip("h5py")
        for side, held in (("train", train), ("test", test)):
            with h5py.File(folder / f"fed_emnist_{side}.h5", "w") as file:
                for client, (ink, label) in held.items():
                    file[f"examples/{client}/pixels"] = paper(ink).reshape(-1, 28, 28)
                    file[f"examples/{client}/label"] = label.astype(np.int32)
    else:
        for side, held in (("train", train), ("test", test)):
            write_leaf(
                folder / side,
                {client: (paper(ink).tolist(), label.tolist()) for client, (ink, label) in held.items()},
                2,
            )


def pam_clients(count, seed):
    rng = np.random.default_rng(seed)
    return {
        f"client_{k}": [
            {"image": rng.integers(0, 256, (32, 32, 3)), "label": np.array([k]), "coarse_label": np.array([k % 20])}
            for _ in range(2)
        ]
        for k in range(count)
    }


def write_cifar100(folder, repeats):
    """CIFAR-100's binary files: every fine class `repeats` times in train, a fifth as often in test."""
    rng = np.random.default_rng(0)
    for side, count in (("train", repeats), ("test", repeats // 5)):
        fine = np.tile(np.arange(100), count)
        records = np.concatenate(
            [np.stack([PARENT[fine], fine], 1), rng.integers(0, 256, (len(fine), 3072))],
            1,
            dtype=np.uint8,
            casting="unsafe",
        )
        (folder / f"{side}.bin").write_bytes(records.tobytes())


SNIPPETS = {b"PLAY_A": [b"To be, or not to be", b"x"], b"PLAY_B": [b"\xc3\xa9" * 100, b""], b"PLAY_C": [b"q" * 78]}


def write_words(folder, packed):
    text = b"".join(b"%s %d\n" % (word, 100 - i) for i, word in enumerate([b"the", b"to", b"a", b"code", b"rare"]))
    (folder / "stackoverflow.word_count").write_bytes(text)
    if packed:
        with tarfile.open(folder / "stackoverflow.word_count.tar.bz2", "w:bz2") as archive:
            archive.add(folder / "stackoverflow.word_count", "stackoverflow.word_count")
        (folder / "stackoverflow.word_count").unlink()
