"""Writes IDX files in the layout of MNIST and its relatives."""

import gzip
import struct

import numpy as np

CODES = {"u1": 0x08, "i1": 0x09, "i2": 0x0B, "i4": 0x0C, "f4": 0x0D, "f8": 0x0E}


def encode(array) -> bytes:
    code = CODES[array.dtype.str[1:]]
    return (
        struct.pack(f">BBBB{array.ndim}i", 0, 0, code, array.ndim, *array.shape)
        + array.astype(array.dtype.newbyteorder(">")).tobytes()
    )


def images(n, size=28, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (n, size, size), np.uint8)


def write(folder, prefix="", test="t10k", n=(6, 3), compress=gzip.compress, suffix=".gz", labels=10):
    folder.mkdir(parents=True, exist_ok=True)
    written = {}
    for split, count in zip(("train", test), n):
        for name, array in (
            (f"{prefix}{split}-images-idx3-ubyte", images(count, seed=count)),
            (f"{prefix}{split}-labels-idx1-ubyte", (np.arange(count) % labels).astype(np.uint8)),
        ):
            (folder / (name + suffix)).write_bytes(compress(encode(array)))
            written[name] = array
    return written


def write_writers(folder, classes=None):
    written = write(folder, n=(6, 3))
    for split, key, writers in (("train", "train", [2000, 7, 2000, 7, 7, 31]), ("test", "t10k", [5, 4, 5, 9])):
        rows = np.zeros((len(writers), 8), np.int32)
        labels = written[f"{key}-labels-idx1-ubyte"]
        rows[: len(labels), 0] = labels if classes is None else classes
        rows[:, 2] = writers
        (folder / f"qmnist-{split}-labels-idx2-int.gz").write_bytes(gzip.compress(encode(rows)))
