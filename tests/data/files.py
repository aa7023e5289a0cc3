"""Writers of small data sets in their published forms."""

import bz2
import gzip
import io
import json
import lzma
import pickle
import shutil
import sqlite3
import struct
import tarfile
import zipfile

import fedjax
import numpy as np
from PIL import Image

from fedwin import data
from fedwin.data import cache
from fedwin.data.sources.cifar_names import PARENT
from fedwin.data.sources.shakespeare_texts import ALPHABET, LENGTH, encode
from tests.refusals import refused as refused  # of the tests beside it

COMPRESS = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".lzma": lambda blob: lzma.compress(blob, format=lzma.FORMAT_ALONE),
}
IDX_TYPES = {"u1": 0x08, "i1": 0x09, "i2": 0x0B, "i4": 0x0C, "f4": 0x0D, "f8": 0x0E}
WRITERS = {"f2101_00": 3, "f0007_01": 2, "f2600_12": 4}


def labeled(labels, num_classes, **features) -> data.Dataset:
    """A data set that has nothing but labels; partitioners look at nothing else."""
    examples = {"x": np.zeros((len(labels), 1), np.uint8), "y": np.asarray(labels, np.int32), **features}
    return data.Dataset("labeled", examples, examples, num_classes)


def balanced(num_classes: int, n: int) -> data.Dataset:
    """n examples, classes in random order; 100 classes come with 20 coarse labels of 5."""
    labels = np.random.default_rng(7).permutation(np.arange(n) % num_classes).astype(np.int32)
    coarse = {"coarse": labels // 5} if num_classes == 100 else {}
    return labeled(labels, num_classes, **coarse)


def write_cache(dataset, text, folder, progress=lambda rows: None):
    """The cache of a data set in a folder, under a name made of the choice."""
    return cache.write_to(cache.path_in(text, folder), dataset, text, progress)


def flip(path) -> None:
    """Inverts the last byte of a file; its modification time may stay the same."""
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 255]))


def zipped(path, members: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, blob in members.items():
            archive.writestr(name, blob)


def tarred(path, members: dict[str, bytes], mode: str = "w") -> None:
    with tarfile.open(path, mode) as archive:
        for name, blob in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(blob)
            archive.addfile(info, io.BytesIO(blob))


def taken(folder) -> dict[str, bytes]:
    """Empties a folder; returns relative name -> content of its files."""
    found = {path.relative_to(folder).as_posix(): path for path in folder.glob("**/*") if path.is_file()}
    contents = {name: path.read_bytes() for name, path in found.items()}
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return contents


def idx(array) -> bytes:
    head = struct.pack(f">BBBB{array.ndim}i", 0, 0, IDX_TYPES[array.dtype.str[1:]], array.ndim, *array.shape)
    return head + array.astype(array.dtype.newbyteorder(">")).tobytes()


def write_idx(folder, prefix="", test="t10k", n=(6, 3), suffix=".gz", labels=10):
    """Random images and labels 0, 1, ...; returns name -> array."""
    folder.mkdir(parents=True, exist_ok=True)
    written = {}
    for split, count in zip(("train", test), n):
        images = np.random.default_rng(count).integers(0, 256, (count, 28, 28), np.uint8)
        written[f"{prefix}{split}-images-idx3-ubyte"] = images
        written[f"{prefix}{split}-labels-idx1-ubyte"] = (np.arange(count) % labels).astype(np.uint8)
    for name, array in written.items():
        (folder / (name + suffix)).write_bytes(COMPRESS[suffix](idx(array)))
    return written


def write_writers(folder, classes=None):
    written = write_idx(folder, n=(6, 3))
    for split, key, writers in (("train", "train", [2000, 7, 2000, 7, 7, 31]), ("test", "t10k", [5, 4, 5, 9])):
        rows = np.zeros((len(writers), 8), np.int32)
        labels = written[f"{key}-labels-idx1-ubyte"]
        rows[: len(labels), 0] = labels if classes is None else classes
        rows[:, 2] = writers
        (folder / f"qmnist-{split}-labels-idx2-int.gz").write_bytes(gzip.compress(idx(rows)))


def write_usps(folder, values, labels):
    folder.mkdir(exist_ok=True)
    for side in ("train", "test"):
        (folder / f"usps-{side}-images-idx3-short").write_bytes(idx(values))
        (folder / f"usps-{side}-labels-idx1-ubyte").write_bytes(idx(labels))


def write_fedjax(path, held: dict) -> None:
    """held: client id -> feature arrays."""
    with fedjax.SQLiteFederatedDataBuilder(str(path)) as builder:
        builder.add_many(held.items())


def write_both(folder, stem: str, held: dict, test: dict | None = None) -> None:
    """Writes FedJAX's files of both sides."""
    write_fedjax(folder / f"{stem}_train.sqlite", held)
    write_fedjax(folder / f"{stem}_test.sqlite", held if test is None else test)


def tff_example(features: dict) -> bytes:
    """A tf.train.Example of int64 and bytes lists."""
    from tensorflow_datasets.proto.tf_example_generated_pb2 import Example  # slow: few tests need it

    message = Example()
    for key, value in features.items():
        kind = message.features.feature[key]
        if isinstance(value, list):
            kind.bytes_list.value.extend(value)
        else:
            kind.int64_list.value.extend(np.asarray(value).reshape(-1).tolist())
    return message.SerializeToString()


def write_tff(path, splits: dict) -> None:
    """splits: name -> client -> list of feature dicts; rows of the clients are mixed; compressed by the suffix."""
    plain = path.parent / "plain"
    connection = sqlite3.connect(plain)
    connection.execute("CREATE TABLE examples (split_name TEXT, client_id TEXT, serialized_example_proto BLOB)")
    for split, held in splits.items():
        rows = [(k, split, client, tff_example(f)) for client, listed in held.items() for k, f in enumerate(listed)]
        mixed = [row[1:] for row in sorted(rows, key=lambda row: row[0])]
        connection.executemany("INSERT INTO examples VALUES (?, ?, ?)", mixed)
    connection.commit()
    connection.close()
    path.write_bytes(COMPRESS[path.suffix if path.suffix in COMPRESS else ""](plain.read_bytes()))
    plain.unlink()


def write_leaf(folder, held: dict, files: int = 1, suffix: str = ".gz") -> None:
    """held: user -> (x, y), spread over several files as LEAF does."""
    folder.mkdir(parents=True, exist_ok=True)
    users = list(held)
    for part in range(files):
        own = users[part::files]
        content = {
            "users": own,
            "num_samples": [len(held[user][1]) for user in own],
            "user_data": {user: {"x": held[user][0], "y": held[user][1]} for user in own},
        }
        name = f"all_data_{part}_niid_0_keep_0.json{suffix}"
        (folder / name).write_bytes(COMPRESS[suffix](json.dumps(content).encode()))


def characters(sizes=WRITERS, seed=0):
    """client -> (bytes of ink [n, 784], labels); files hold 1 - ink / 255."""
    rng = np.random.default_rng(seed)
    return {client: (rng.integers(0, 256, (n, 784), np.uint8), rng.integers(0, 62, n)) for client, n in sizes.items()}


def paper(ink) -> np.ndarray:
    return (1 - ink.astype(np.float32) / 255).astype(np.float32)


def write_femnist(folder, form, train, test):
    for side, held in (("train", train), ("test", test)):
        if form == "fedjax":
            content = {
                f"{k:016x}:{client}".encode(): {"pixels": paper(ink).reshape(-1, 28, 28), "label": label}
                for k, (client, (ink, label)) in enumerate(held.items())
            }
            write_fedjax(folder / f"federated_emnist_{side}.sqlite", content)
        else:
            lists = {client: (paper(ink).tolist(), label.tolist()) for client, (ink, label) in held.items()}
            write_leaf(folder / side, lists, 2)


def planes(n, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (n, 3072), np.uint8)


def binary(labels, pixels) -> bytes:
    """CIFAR's binary records."""
    return np.concatenate([np.asarray(labels, np.uint8).reshape(len(pixels), -1), pixels], 1).tobytes()


def write_cifar100(folder, repeats):
    """CIFAR-100's binary files: every fine class `repeats` times in train, a fifth as often in test."""
    for side, count in (("train", repeats), ("test", repeats // 5)):
        fine = np.tile(np.arange(100), count)
        (folder / f"{side}.bin").write_bytes(binary(np.stack([PARENT[fine], fine], 1), planes(len(fine))))


def text_of(role, n):
    """A random text of n characters of LEAF's alphabet."""
    return "".join(ALPHABET[i] for i in np.random.default_rng(role).integers(0, 79, n))


def leaf_windows(text, stride):
    starts = range(0, len(text) - LENGTH, stride)
    return [text[s : s + LENGTH] for s in starts], [text[s + LENGTH] for s in starts]


def expect_runs(dataset, texts, train, test):
    """Every client's windows are a contiguous run of its role's text; training and test text do not overlap."""
    letters = lambda ids: "".join(ALPHABET[i] for i in ids)
    for k, role in enumerate(dataset.natural.ids):
        ends = []
        for features, size in ((dataset.train, train), (dataset.test, test)):
            x, y = (features[key][k * size : (k + 1) * size] for key in ("x", "y"))
            run = letters(x[0]) + letters(y)
            at = texts[str(role)].index(run)
            np.testing.assert_array_equal(x[-1], encode(run[-LENGTH - 1 : -1]))
            ends.append((at, at + len(run)))
        assert ends[0][1] <= ends[1][0] + 1


def picture(color, size=(40, 30), kind="JPEG") -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", size, color).save(stream, kind)
    return stream.getvalue()


def write_landmarks(folder):
    (folder / "images" / "a").mkdir(parents=True)
    lines = ["user_id,image_id,class"]
    for k, user in enumerate(("7", "10", "7", "3")):
        (folder / "images" / "a" / f"id{k}.jpg").write_bytes(picture((60 * k, 0, 0)))
        lines.append(f"{user},id{k},{k}")
    (folder / "federated_train.csv").write_text("\n".join(lines))
    (folder / "images" / "t.jpg").write_bytes(picture((0, 255, 0)))
    (folder / "test.csv").write_text("image_id,class\nt,3\n")


def write_pacs(root, n=10):
    for domain in ("photo", "art_painting", "cartoon", "sketch"):
        for c in ("dog", "person"):
            folder = root / "PACS" / domain / c
            folder.mkdir(parents=True)
            for i in range(n):
                (folder / f"{i}.png").write_bytes(picture((20 * i, 0, 0), (8, 8), "PNG"))


FEDBN = {
    "MNIST": (28, 28, 1),
    "SVHN": (32, 32, 3),
    "USPS": (16, 16),
    "SynthDigits": (32, 32, 3),
    "MNIST_M": (28, 28, 3),
}


def write_fedbn(root, names=tuple(FEDBN)):
    rng = np.random.default_rng(0)
    for name in names:
        folder = root / "digit_dataset" / name / "partitions"
        folder.mkdir(parents=True)
        make = lambda n: (rng.integers(0, 256, (n, *FEDBN[name]), np.uint8), rng.integers(0, 10, n))
        for i in range(10):
            (folder / f"train_part{i}.pkl").write_bytes(pickle.dumps(make(4)))
        (folder.parent / "test.pkl").write_bytes(pickle.dumps(make(3)))
