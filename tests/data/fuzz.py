"""Random mutations of small valid files of every format: each ends in a data set or in one line of UserError.

python -m tests.data.fuzz SEED CASES [FORMAT ...]

Every case is written to standard output before it runs, so that the last line names a case that ended the process.
"""

import bz2
import csv
import gzip
import io
import json
import lzma
import os
import pathlib
import pickle
import random
import resource
import shutil
import signal
import sqlite3
import sys
import tarfile
import tempfile
import time
import traceback
import warnings
import zipfile
import zlib

import msgpack
import numpy as np
from PIL import Image

from fedwin import data
from fedwin.data import cache
from fedwin.errors import UserError
from tests.data import idx_files, wire

# Address space that a case may add, and seconds that it may take.
MEMORY = 3 << 29
SECONDS = 10
# The data set whose cache is mutated.
PACKED = "mnist_writers_synthetic:clients=3,n=12"

INTERESTING = (
    0,
    1,
    0x7F,
    0x80,
    0xFF,
    0x7FFF,
    0xFFFF,
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 1,
    (1 << 63) - 1,
    (1 << 64) - 1,
)
COMPRESS = {".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress}


def mutate(blob: bytes, rng: random.Random) -> bytes:
    """Changes one to four places of a file."""
    content = bytearray(blob)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        if not content:
            return bytes(content)
        # Headers, and directories at the end, are small: they are chosen as often as all the rest.
        at = rng.randrange(len(content))
        if rng.random() < 0.5:
            at = min(int(rng.expovariate(1 / 40)), len(content) - 1)
            at = len(content) - 1 - at if rng.random() < 0.3 else at
        kind = rng.randrange(7)
        if kind == 0:
            content[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            content[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        elif kind == 2:
            width = rng.choice((2, 4, 8))
            number = rng.choice((*INTERESTING, rng.getrandbits(64))) % (1 << 8 * width)
            content[at : at + width] = number.to_bytes(width, rng.choice(("little", "big")))
        elif kind == 3:
            del content[at:]
        elif kind == 4:
            del content[at : at + rng.randrange(1, 40)]
        elif kind == 5:
            content[at:at] = rng.randbytes(rng.randrange(1, 20))
        else:
            start = rng.randrange(len(content))
            content[at : at + rng.randrange(1, 40)] = content[start : start + rng.randrange(1, 40)]
    return bytes(content)


def encoded(kind: str, size=(9, 7)) -> bytes:
    stream = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), np.uint8)
    Image.fromarray(pixels).save(stream, kind)
    return stream.getvalue()


def write(folder: pathlib.Path, files: dict[str, bytes]) -> None:
    for name, blob in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(blob)


def any_of(files: dict[str, bytes], rng: random.Random) -> dict[str, bytes]:
    """Mutates one of several files."""
    name = rng.choice(sorted(files))
    return files | {name: mutate(files[name], rng)}


def zipped(files: dict[str, bytes], method=zipfile.ZIP_DEFLATED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        for name, blob in files.items():
            archive.writestr(name, blob)
    return stream.getvalue()


def tarred(files: dict[str, bytes], mode: str = "w") -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode=mode) as archive:
        for name, blob in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(blob)
            archive.addfile(info, io.BytesIO(blob))
    return stream.getvalue()


def mnist() -> dict[str, bytes]:
    names = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
    arrays = (idx_files.images(6, 4), np.arange(6), idx_files.images(3, 4), np.arange(3))
    return {name: idx_files.encode(array.astype(np.uint8)) for name, array in zip(names, arrays)}


def idx(folder, rng):
    files = any_of(mnist(), rng)
    form = rng.choice(("", ".gz", ".xz", ".bz2", "stored", "zip"))
    if form == "zip":  # a mutated archive, or an archive of mutated files
        blob = zipped(files) if rng.random() < 0.5 else mutate(zipped(mnist()), rng)
        write(folder, {"mnist.zip": blob})
    elif form == "stored":  # a mutated compressed file
        suffix = rng.choice(sorted(COMPRESS))
        write(folder, any_of({name + suffix: COMPRESS[suffix](blob) for name, blob in mnist().items()}, rng))
    else:
        write(folder, {name + form: COMPRESS.get(form, bytes)(blob) for name, blob in files.items()})
    return "mnist", folder


def npz(folder, rng):
    x, y = np.arange(4 * 3 * 3, dtype=np.float32).reshape(4, 3, 3), np.arange(4)
    arrays = {"x_train": x, "y_train": y, "x_test": x, "y_test": y, "client_train": np.array(["a", "b", "a", "b"])}
    members = {}
    for name, array in arrays.items():
        stream = io.BytesIO()
        np.save(stream, array)
        members[f"{name}.npy"] = stream.getvalue()
    method = rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    blob = zipped(any_of(members, rng), method) if rng.random() < 0.5 else mutate(zipped(members, method), rng)
    write(folder, {"data.npz": blob})
    return "npz", folder


def pickles(folder, rng):
    generator = np.random.default_rng(0)
    make = lambda n: (generator.integers(0, 256, (n, 28, 28, 1), np.uint8), generator.integers(0, 10, n))
    protocol = rng.randrange(6)
    files = {
        "digit_dataset/MNIST/partitions/train_part0.pkl": pickle.dumps(make(2), protocol),
        "digit_dataset/MNIST/test.pkl": pickle.dumps([part.tolist() for part in make(1)], protocol),
    }
    files = any_of(files, rng)
    if rng.random() < 0.2:
        write(folder, {"digit_dataset.zip": zipped(files)})
    else:
        write(folder, files)
    return "digit5:domains=mnist,parts=1", folder


def cifar(folder, rng):
    records = {}
    for name, labels in (("train.bin", [(1, 2), (3, 4)]), ("test.bin", [(0, 99)])):
        records[f"cifar-100-binary/{name}"] = b"".join(bytes(pair) + bytes(3072) for pair in labels)
    if rng.random() < 0.5:
        blob = gzip.compress(tarred(any_of(records, rng)))
    else:
        blob = (
            gzip.compress(mutate(tarred(records), rng)) if rng.random() < 0.5 else mutate(tarred(records, "w:gz"), rng)
        )
    write(folder, {"cifar-100-binary.tar.gz": blob})
    return "cifar100", folder


def images(folder, rng):
    kinds = {"a.png": "PNG", "b.jpg": "JPEG", "c.bmp": "BMP", "d.webp": "WEBP", "e.jpeg": "PNG"}
    files = any_of({f"images/{name}": encoded(kind) for name, kind in kinds.items()}, rng)
    lists = {
        "train.csv": b"user_id,image_id,class\nu,a,0\nu,b,1\nv,c,1\n",
        "test.csv": b"image_id,class\nd,0\ne,1\n",
    }
    if rng.random() < 0.2:
        lists = any_of(lists, rng)
    write(folder, files | lists)
    return "image_folder:size=4,resize=5", folder


def pacs_tar(folder, rng):
    names = [f"PACS/{d}/dog/{i}.png" for d in ("photo", "art_painting", "cartoon", "sketch") for i in range(2)]
    files = dict.fromkeys(names, encoded("PNG"))
    form = rng.choice(("", ":gz", ":xz", ":bz2", "zip"))
    pack = zipped if form == "zip" else lambda members: tarred(members, f"w{form}")
    blob = pack(any_of(files, rng)) if rng.random() < 0.3 else mutate(pack(files), rng)
    write(folder, {"pacs.zip" if form == "zip" else f"pacs.tar{form.replace(':', '.')}": blob})
    return "pacs:size=4,resize=5", folder


def hdf5(folder, rng):
    import h5py

    for side in ("train", "test"):
        stream = io.BytesIO()
        with h5py.File(stream, "w") as file:
            for client in ("f0001_00", "f0002_00"):
                options = {"compression": "gzip"} if rng.random() < 0.5 else {}
                pixels = np.ones((2, 28, 28), np.float32)
                file.create_dataset(f"examples/{client}/pixels", data=pixels, **options)
                file.create_dataset(f"examples/{client}/label", data=np.array([3, 4], np.int32))
        blob = stream.getvalue()
        write(folder, {f"fed_emnist_{side}.h5": mutate(blob, rng) if side == "train" else blob})
    return "femnist:form=hdf5", folder


def texts_hdf5(folder, rng):
    import h5py

    for side in ("train", "test"):
        stream = io.BytesIO()
        with h5py.File(stream, "w") as file:
            texts = np.array([b"To be", b"or not"], object)
            kind = h5py.special_dtype(vlen=bytes)
            file.create_dataset("examples/ROLE/snippets", data=texts, dtype=kind)
        blob = stream.getvalue()
        write(folder, {f"shakespeare_{side}.h5": mutate(blob, rng) if side == "train" else blob})
    return "shakespeare", folder


def fedjax_record(arrays: dict) -> bytes:
    """A record as FedJAX writes it, before zlib."""

    def default(value):
        if value.dtype == object:
            return msgpack.ExtType(4, msgpack.packb((value.shape, value.reshape(-1).tolist())))
        return msgpack.ExtType(1, msgpack.packb((value.shape, value.dtype.name, value.tobytes())))

    return msgpack.packb(arrays, default=default)


def database(folder, name: str, tables: dict[str, list[tuple]]) -> bytes:
    """The content of an SQLite file of tables 'name(columns)' -> rows."""
    path = folder / name
    connection = sqlite3.connect(path)
    for table, rows in tables.items():
        connection.execute(f"CREATE TABLE {table}")
        marks = ", ".join("?" * len(rows[0]))
        connection.executemany(f"INSERT INTO {table.split('(')[0]} VALUES ({marks})", rows)
    connection.commit()
    connection.close()
    blob = path.read_bytes()
    path.unlink()
    return blob


def sqlite_fedjax(folder, rng):
    arrays = {"pixels": np.ones((2, 28, 28), np.float32), "label": np.array([3, 4], np.int32)}
    record = fedjax_record(arrays)
    where = rng.randrange(3)
    plain = mutate(record, rng) if where == 0 else record
    stored = mutate(zlib.compress(plain), rng) if where == 1 else zlib.compress(plain)
    table = "federated_data(client_id BLOB NOT NULL PRIMARY KEY, data BLOB NOT NULL, num_examples INTEGER NOT NULL)"
    make = lambda rows: database(folder, "made", {table: rows})
    good = make([(b"f0001_00", zlib.compress(record), 2)])
    bad = make([(b"f0001_00", stored, 2), (b"f0002_00", zlib.compress(record), 2)])
    write(
        folder,
        {
            "federated_emnist_train.sqlite": mutate(bad, rng) if where == 2 else bad,
            "federated_emnist_test.sqlite": good,
        },
    )
    return "femnist:form=fedjax", folder


def sqlite_tff(folder, rng):
    image = {"image": np.arange(3072) % 256, "label": np.array([7]), "coarse_label": np.array([1])}
    record = wire.example(image, packed=rng.random() < 0.5)
    where = rng.randrange(3)
    rows = [(split, "me", mutate(record, rng) if where == 0 else record) for split in ("train", "test")]
    blob = database(
        folder,
        "made",
        {
            "examples(split_name TEXT, client_id TEXT, serialized_example_proto BLOB)": rows,
            "client_metadata(client_id TEXT, split_name TEXT, num_examples INTEGER)": [("me", "train", 1)],
        },
    )
    blob = mutate(blob, rng) if where == 1 else blob
    if where < 2 or rng.random() < 0.3:
        write(folder, {"cifar100.sqlite": blob})
    else:
        packed = lzma.compress(blob, format=lzma.FORMAT_ALONE)
        write(folder, {"cifar100.sqlite.lzma": mutate(packed, rng)})
    return "cifar100_pam", folder


def leaf(folder, rng):
    users = {
        "users": ["f0001_00", "b"],
        "num_samples": [1, 1],
        "user_data": {user: {"x": [[1.0, 0.5] * 392], "y": [3]} for user in ("f0001_00", "b")},
    }
    files = {f"{side}/all.json": json.dumps(users).encode() for side in ("train", "test")}
    files = any_of(files, rng)
    if rng.random() < 0.3:
        files = {f"{name}.gz": gzip.compress(blob) for name, blob in files.items()}
    write(folder, files)
    return "femnist:form=leaf", folder


def windows(folder, rng):
    text = "To be or not to be " * 12
    pair = {"x": [[text[i : i + 80] for i in range(3)]], "y": [[text[i + 80] for i in range(3)]]}
    blob = json.dumps(pair).encode()
    write(folder, any_of({"train_sampled_niid.json": blob, "test_sampled.json": blob}, rng))
    return "shakespeare_leaf", folder


def split_file(folder, rng):
    users = {"users": ["0", "1"], "user_data": {str(u): {"x": [f"img_{u}_label_{u}.png"]} for u in range(2)}}
    table = io.StringIO()
    csv.writer(table).writerows([("user_id", "image_id", "class"), (0, 5, 1), (1, 6, 2)])
    name = rng.choice(("split.json", "split.csv"))
    blob = json.dumps(users) if name.endswith("json") else table.getvalue()
    write(folder, {name: mutate(blob.encode(), rng)})
    return f"csv:path={folder / name}", None


def matlab(folder, rng):
    from scipy.io import savemat

    for name in ("train_32x32.mat", "test_32x32.mat"):
        stream = io.BytesIO()
        content = {"X": np.zeros((32, 32, 3, 6), np.uint8), "y": np.arange(6)[:, None] % 10}
        savemat(stream, content, do_compression=rng.random() < 0.5, format=rng.choice(("4", "5")) if 0 else "5")
        write(folder, {name: mutate(stream.getvalue(), rng) if name[:5] == "train" else stream.getvalue()})
    return "digit5:domains=svhn,per_domain=3", folder


def texts(folder, rng):
    play = b"THE PLAY\n\nACT I\n\nANN\tTo be, or not to be\n\tthat is\n\nBOB\tno\n\nANN\tyes\n\nBOB\tno\n" * 40
    write(folder, {"plays/play.txt": mutate(play, rng)})
    return "shakespeare_leaf:clients=1,train=2,test=1", folder


def packed_cache(folder, rng):
    written = cache.write(data.load(PACKED), "usps", folder)
    path = rng.choice(sorted(written.iterdir()))
    path.write_bytes(mutate(path.read_bytes(), rng))
    return "usps", folder


FORMATS = {
    function.__name__: function
    for function in (
        idx, npz, pickles, cifar, images, pacs_tar, hdf5, texts_hdf5, sqlite_fedjax, sqlite_tff, leaf, windows,
        split_file, matlab, texts, packed_cache,
    )
}  # fmt: skip


def load(choice: str, folder) -> str:
    """Loads a data set completely; returns '' or the message of its UserError."""
    try:
        if folder is None:
            dataset = data.load("digits")
            data.make_partition(dataset, choice, None, 0)
        else:
            dataset = data.load(choice, folder)
            if choice == "usps":  # a packed cache is what was written, or refused
                assert data.checksum(dataset) == data.checksum(data.load(PACKED)), "the cache has changed silently"
        for features in (dataset.train, dataset.test):
            for value in features.values():
                np.asarray(value)
    except UserError as error:
        return str(error) or "(no message)"
    return ""


def case(name: str, seed: int, folder: pathlib.Path) -> str:
    """Runs a case; returns what is wrong about its outcome, or ''."""
    rng = random.Random(f"{name} {seed}")
    choice, data_dir = FORMATS[name](folder, rng)
    start = time.monotonic()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            message = load(choice, data_dir)
    except BaseException:
        return traceback.format_exc()
    if "\n" in message:
        return f"a message of several lines: {message!r}"
    if len(message) > 1500:
        return f"a message of {len(message)} characters: {message[:200]!r}"
    if message and not any(part in message for part in (str(folder), choice.split(":")[0])):
        return f"a message that names no file: {message!r}"
    seconds = time.monotonic() - start
    return f"{seconds:.1f} seconds" if seconds > SECONDS / 2 else ""


def out_of_time(*_):
    raise BaseException(f"a case takes longer than {SECONDS} seconds")


def main(seed: int, cases: int, formats: list[str]) -> int:
    """Runs cases of every format; returns the number of wrong outcomes."""
    # The packages that loaders import on first use need address space as well.
    import google.protobuf  # noqa: F401
    import h5py  # noqa: F401
    import scipy.io  # noqa: F401

    os.environ["FEDWIN_CACHE_DIR"] = tempfile.mkdtemp(prefix="fedwin-fuzz-cache-")
    used = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    signal.signal(signal.SIGALRM, out_of_time)
    wrong = 0
    for name in formats or FORMATS:
        for number in range(seed, seed + cases):
            print(f"{name} {number}", flush=True)
            with tempfile.TemporaryDirectory(prefix="fedwin-fuzz-") as folder:
                signal.alarm(SECONDS)
                outcome = case(name, number, pathlib.Path(folder))
                signal.alarm(0)
            if outcome:
                wrong += 1
                print(f"WRONG {name} {number}: {outcome}", flush=True)
    shutil.rmtree(os.environ["FEDWIN_CACHE_DIR"])
    return wrong


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]) > 0)
