"""Files made to run code, to crash NumPy or to fill the memory: one line, soon and in little memory."""

import bz2
import contextlib
import gzip
import lzma
import pickle
import sqlite3
import struct
import time
import tracemalloc
import zipfile
import zlib

import numpy as np
import pytest

from fedwin import data
from fedwin.data.formats import fedjax_sqlite, files, image_files, limits, pickles, tff
from fedwin.data.sources import digit5_files
from fedwin.errors import UserError
from tests.data import idx_files
from tests.data.fuzz import encoded, fedjax_record, tarred

pytestmark = pytest.mark.filterwarnings("ignore:.*unverified")
MEGABYTE = 1 << 20


class Reduced:
    """Pickles as the call of a function."""

    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call


class DtypeState:
    """Pickles as a structured type whose eight bytes are a pointer to an object."""

    def __reduce__(self):
        fields = {"a": (np.dtype("O"), 0)}
        return np.dtype, ("V8", False, True), (3, "|", None, ("a",), fields, 8, 1, 0)


class Pointers:
    """Pickles as an array of that type, with bytes that are no pointers."""

    def __reduce__(self):
        state = (1, (4,), DtypeState(), False, b"\x41" * 32)
        return np.zeros(0).__reduce__()[0], (np.ndarray, (0,), b"b"), state


@pytest.mark.parametrize(
    "value, message",
    [
        (Pointers(), "a type with fields or parts"),
        (np.zeros(2, [("a", object)]), "a type with fields or parts|stored as list"),
        (np.zeros(2, [("a", "i4")]), "a type with fields or parts"),
        (np.array([b"x", None]), "stored as list|arrays of type 'O8'"),
        (np.array(["text"]), "arrays of type 'U4' are not read, only numbers"),
        (np.zeros(2, "M8[s]"), "arrays of type 'M8'"),
        (Reduced(np.ndarray, ((1 << 40,),)), "it calls numpy.ndarray"),
        (Reduced(np.dtype, ("i4",)), "it contains a type or a function"),
        (np.ndarray, "it contains a type or a function"),
        (Reduced(np.zeros(0).__reduce__()[0], (np.ndarray, (0,), b"b")), "an array without content"),
        (Reduced(eval, ("1",)), "it names .*eval"),
        (Reduced(open, ("file",)), "it names .*open"),
    ],
)
@pytest.mark.parametrize("protocol", [2, 5])
def test_pickles_give_numpy_no_type(value, message, protocol):
    with pytest.raises(UserError, match=f"file: not a pickle of arrays .*({message})") as error:
        pickles.loads(pickle.dumps([value], protocol), "file")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("protocol", range(6))
def test_pickles_of_plain_arrays_are_read(protocol):
    values = {
        "many": [np.arange(6, dtype=f">{kind}").reshape(2, 3) for kind in ("i2", "u4", "i8", "f2", "f4", "f8")],
        "order": (np.asfortranarray(np.arange(6).reshape(2, 3)), np.zeros((0, 3), np.uint8)),
        "scalars": [np.float32(1.5), np.int64(-2), True, None, 3, 2.5, b"bytes", "text"],
        "truth": np.array([True, False]),
    }
    loaded = pickles.loads(pickle.dumps(values, protocol), "file")
    for own, read in zip((*values["many"], *values["order"]), (*loaded["many"], *loaded["order"]), strict=True):
        np.testing.assert_array_equal(read, own)
        assert type(read) is np.ndarray and read.flags.writeable and read.dtype == own.dtype.newbyteorder("=")
    assert loaded["scalars"] == values["scalars"] and type(loaded["scalars"][0]) is np.float32
    assert loaded["truth"].tolist() == [True, False]


def test_pickles_that_would_fill_the_memory():
    numbered = pickle.dumps([1, 2]).replace(b"\x94", b"r" + struct.pack("<I", (1 << 32) - 1), 1)
    doubled = [0]
    for _ in range(60):
        doubled = [doubled, doubled]
    for blob, message in ((numbered, "numbers an object 4294967295"), (pickle.dumps((doubled, [0])), "more values")):
        with pytest.raises(UserError, match=message):
            pickles.loads(blob, "file")
    with pytest.raises(UserError, match="part.pkl: not a pickle of arrays"):
        digit5_files.from_pickle(pickle.dumps((doubled, [0])), "part.pkl")
    deep = b"(" * 100_000 + b"t" * 100_000 + b"."
    with pytest.raises(UserError, match="file: not a pickle"):
        pickles.loads(deep, "file")


@contextlib.contextmanager
def one_line(match: str):
    """Requires a UserError of one line, soon and with less than 60 MB allocated."""
    tracemalloc.start()
    start = time.perf_counter()
    try:
        with pytest.raises(UserError, match=match) as error:
            yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 60e6 and time.perf_counter() - start < 5 and "\n" not in str(error.value)


# Streams of several members decompress to all of them: 20 GiB of zeros, compressed once.
ZEROS = {
    ".gz": lambda head: gzip.compress(head) + gzip.compress(bytes(4 * MEGABYTE)) * 5120,
    ".bz2": lambda head: bz2.compress(head) + bz2.compress(bytes(4 * MEGABYTE)) * 5120,
    ".xz": lambda head: lzma.compress(head) + lzma.compress(bytes(4 * MEGABYTE), preset=0) * 5120,
}


def write_mnist(folder, name: str, blob: bytes, suffix: str) -> None:
    idx_files.write(folder)
    (folder / f"{name}.gz").unlink()
    (folder / f"{name}{suffix}").write_bytes(blob)


@pytest.mark.parametrize("suffix", ZEROS)
def test_twenty_gigabytes_of_zeros_are_one_line(tmp_path, suffix):
    head = idx_files.encode(np.zeros(6, np.uint8))
    write_mnist(tmp_path, "train-labels-idx1-ubyte", ZEROS[suffix](head), suffix)
    with one_line(f"train-labels-idx1-ubyte{suffix}: at least .* bytes, but the header says 14"):
        data.load("mnist", tmp_path)


def test_twenty_gigabytes_in_an_archive_are_one_line(tmp_path):
    names = idx_files.write(tmp_path / "plain", suffix="", compress=bytes)
    with zipfile.ZipFile(tmp_path / "mnist.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in names.items():
            with archive.open(name, "w", force_zip64=True) as member:
                member.write(idx_files.encode(array))
                for _ in range(4):  # zipfile has no members of several streams, so only 16 MB
                    member.write(bytes(4 * MEGABYTE))
    with one_line("mnist.zip/.*: at least .* bytes, but the header says"):
        data.load("mnist", tmp_path / "mnist.zip")


def test_announced_sizes_of_members_are_checked_before_they_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "ALWAYS_BYTES", MEGABYTE)
    archive = bytearray(tarred({"a.png": encoded("PNG"), "b.png": b""}))
    info = archive.index(b"b.png")
    archive[info + 124 : info + 136] = b"77777777777\0"  # eight gigabytes
    checksum = sum(archive[info : info + 148]) + sum(archive[info + 156 : info + 512]) + 8 * 32
    archive[info + 148 : info + 156] = b"%06o\0 " % checksum
    for name, blob in (("x.tar", bytes(archive)), ("x.tar.gz", gzip.compress(archive))):
        (tmp_path / name).write_bytes(blob)
        with one_line(f"{name}: it expands to more than .* bytes"):
            files.members(tmp_path / name)
    with zipfile.ZipFile(tmp_path / "x.zip", "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("a.png", bytes(8 * MEGABYTE))
    with one_line("x.zip: it expands to more than"):
        image_files.images_below(tmp_path / "x.zip")


@pytest.mark.parametrize("suffix", ZEROS)
def test_texts_expand_to_a_bound(tmp_path, monkeypatch, suffix):
    monkeypatch.setattr(limits, "ALWAYS_BYTES", MEGABYTE)
    (tmp_path / "train").mkdir()
    (tmp_path / "test").mkdir()
    compress = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}[suffix]
    (tmp_path / "train" / f"a.json{suffix}").write_bytes(compress(b" " * 8 * MEGABYTE))
    (tmp_path / "test" / "a.json").write_text("{}")
    with one_line(f"a.json{suffix}: it expands to more than .* bytes"):
        data.load("femnist:form=leaf", tmp_path)


def test_unpacked_files_expand_to_a_bound(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "ALWAYS_BYTES", MEGABYTE)
    (tmp_path / "emnist_all.sqlite.lzma").write_bytes(lzma.compress(bytes(16 * MEGABYTE), format=lzma.FORMAT_ALONE))
    with one_line("emnist_all.sqlite.lzma: it expands to more than"):
        data.load("femnist:form=tff", tmp_path)


def test_records_expand_to_a_bound(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "ALWAYS_BYTES", MEGABYTE)
    connection = sqlite3.connect(tmp_path / "a.sqlite")
    connection.execute("CREATE TABLE federated_data (client_id, data, num_examples)")
    record = zlib.compress(fedjax_record({"x": np.zeros(8 * MEGABYTE, np.uint8)}))
    connection.execute("INSERT INTO federated_data VALUES (?, ?, 1)", (b"me", record))
    connection.commit()
    connection.close()
    with one_line("client 'me': its record is damaged .*expands to more than"):
        list(fedjax_sqlite.read_sqlite(tmp_path / "a.sqlite"))


@pytest.mark.parametrize("name", ["O", "i4,O", "V8", "M8", "(9,9)f8", "float128"])
def test_records_give_numpy_no_type(name):
    import msgpack

    blob = msgpack.packb({"x": msgpack.ExtType(1, msgpack.packb(((1,), name, bytes(16))))})
    with pytest.raises(ValueError, match="are not read, only numbers"):
        fedjax_sqlite.unpack(blob)


def test_records_are_read_as_fedjax_reads_them():
    from fedjax.core.serialization import msgpack_deserialize, msgpack_serialize

    record = {
        "x": np.arange(6, dtype=np.float32).reshape(2, 3),
        "y": np.arange(3),
        "empty": np.zeros((0, 4), np.uint8),
        "truth": np.array([True, False]),
        "texts": np.array([[b"a", b""], [b"\xff", b"long"]], object),
        "plain": [1, "two", b"three"],
    }
    blob = msgpack_serialize(record)
    ours, theirs = fedjax_sqlite.unpack(blob), msgpack_deserialize(blob)
    assert ours.keys() == theirs.keys()
    for key, value in theirs.items():
        np.testing.assert_array_equal(ours[key], value)
        assert type(ours[key]) is type(value) and getattr(ours[key], "dtype", None) == getattr(value, "dtype", None)


def test_arrays_without_content_are_not_allocated(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("examples/me/pixels", shape=(1 << 40,), dtype=np.float32, chunks=(1 << 10,))
    with one_line("a.h5: it expands to more than"):
        list(tff.read_hdf5(tmp_path / "a.h5", dict))


def test_heaps_without_sizes_are_refused(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        kind = h5py.special_dtype(vlen=bytes)
        file.create_dataset("examples/me/snippets", data=np.array([b"To be"], object), dtype=kind)
    assert [client for client, _ in tff.read_hdf5(tmp_path / "a.h5", dict)] == ["me"]
    content = bytearray((tmp_path / "a.h5").read_bytes())
    heap = content.index(b"GCOL")
    content[heap + 16 : heap + 32] = bytes(16)  # libhdf5 would loop forever
    (tmp_path / "a.h5").write_bytes(content)
    with pytest.raises(UserError, match="a.h5: not a readable HDF5 file .damaged heap"):
        list(tff.read_hdf5(tmp_path / "a.h5", dict))


def test_images_of_too_many_pixels_are_not_decoded(tmp_path):
    head = struct.pack(">IIBBBBB", 12_000, 8_000, 8, 0, 0, 0, 0)
    chunk = lambda name, body: struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
    blob = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(100)))
    (tmp_path / "a.png").write_bytes(blob)
    with (
        pytest.warns(Warning, match="decompression bomb"),
        one_line("a.png: not a decodable image .12000 x 8000 pixels are more than 89,000,000"),
    ):
        data.Images([tmp_path / "a.png"], 8)[0]


def test_npz_members_expand_to_a_bound(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "ALWAYS_BYTES", MEGABYTE)
    with zipfile.ZipFile(tmp_path / "data.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x_train.npy", bytes(8 * MEGABYTE))
    with one_line("data.npz: it expands to more than"):
        data.load("npz", tmp_path)


def test_pointers_in_digit_five(tmp_path):
    for name in ("test.pkl", "partitions/train_part0.pkl"):
        path = tmp_path / "digit_dataset" / "MNIST" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(pickle.dumps((np.zeros((4, 28, 28), np.uint8), Pointers())))
    with pytest.raises(UserError, match=f"{tmp_path}.*train_part0.pkl: not a pickle of arrays .it contains a type"):
        data.load("digit5:domains=mnist,parts=1", tmp_path)


def test_json_of_many_brackets_is_one_line(tmp_path):
    deep = "[" * 100_000
    for side in ("train", "test"):
        (tmp_path / side).mkdir()
        (tmp_path / side / "a.json").write_text(deep)
    (tmp_path / "split.json").write_text('{"users": ' + deep)
    (tmp_path / "train_sampled_niid.json").write_text(deep)
    (tmp_path / "test_sampled.json").write_text(deep)
    with one_line("a.json: not a LEAF file"):
        data.load("femnist:form=leaf", tmp_path)
    with one_line("train_sampled_niid.json: not lists of windows"):
        data.load("shakespeare_leaf", tmp_path)
    with one_line("split.json: not a LEAF file"):
        data.make_partition(data.load("digits"), f"csv:path={tmp_path / 'split.json'}", None, 0)
