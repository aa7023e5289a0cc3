"""Values that NumPy would cast silently, and incomplete records: one line with file, client and record."""

import gzip
import sqlite3

import numpy as np
import pytest
from PIL import Image

from fedwin import data
from fedwin.data.formats import clients, values
from fedwin.data.sources import digit5, digit5_files, mnist
from fedwin.errors import UserError
from tests.data.files import objects, write_fedjax_sqlite, write_leaf, write_tff_sqlite
from tests.data.idx_files import encode, write

pytestmark = pytest.mark.filterwarnings("ignore:.*unverified")
PAPER = np.ones((2, 28, 28), np.float32)


def refuse(text, folder, *parts):
    """Loading must end in one line that has all the parts."""
    with pytest.raises(UserError) as error:
        data.load(text, folder)
    assert "\n" not in str(error.value)
    for part in parts:
        assert part in str(error.value), str(error.value)


def with_pixel(value):
    pixels = PAPER.copy()
    pixels[1, 5, 5] = value
    return pixels


FEMNIST = [
    ({"pixels": with_pixel(1.7), "label": np.array([1, 2])}, "record 1: a pixel is NaN or outside 0..1"),
    ({"pixels": with_pixel(-0.5), "label": np.array([1, 2])}, "record 1: a pixel is NaN or outside 0..1"),
    ({"pixels": with_pixel(np.nan), "label": np.array([1, 2])}, "record 1: a pixel is NaN or outside 0..1"),
    ({"pixels": PAPER, "label": np.array([1, 3.7])}, "record 1: label 3.7 is not a whole number"),
    ({"pixels": PAPER, "label": np.array([62, 1])}, "record 0: label 62 is not in 0..61"),
    ({"pixels": PAPER, "label": np.array([-1, 1])}, "record 0: label -1 is not in 0..61"),
    ({"pixels": PAPER[:, :5], "label": np.array([1, 2])}, "280 pixels are not whole images of 784"),
    ({"pixels": PAPER}, "there is no 'label'"),
    ({"label": np.array([1, 2])}, "there is no 'pixels'"),
]


@pytest.mark.parametrize("paper", [0, 1])
@pytest.mark.parametrize("features, message", FEMNIST)
def test_femnist_in_fedjax_files(tmp_path, features, message, paper):
    good = {"pixels": PAPER, "label": np.array([1, 2])}
    write_fedjax_sqlite(tmp_path / "federated_emnist_train.sqlite", {b"a": good, b"b": features})
    write_fedjax_sqlite(tmp_path / "federated_emnist_test.sqlite", {b"a": good})
    refuse(f"femnist:paper={paper}", tmp_path, "federated_emnist_train.sqlite, client 'b'", message)


@pytest.mark.parametrize("features, message", FEMNIST)
def test_femnist_in_hdf5_and_leaf_files(tmp_path, features, message):
    h5py = pytest.importorskip("h5py")
    for side in ("train", "test"):
        with h5py.File(tmp_path / f"fed_emnist_{side}.h5", "w") as file:
            for key, value in features.items():
                file[f"examples/b/{key}"] = value
    refuse("femnist", tmp_path, "fed_emnist_train.h5, client 'b'", message)
    if len(features) == 2:
        held = (features["pixels"].reshape(len(features["label"]), -1).tolist(), features["label"].tolist())
        for side in ("train", "test"):
            write_leaf(tmp_path / side, {"b": held})
        refuse("femnist:form=leaf", tmp_path, "all_data_0_niid_0_keep_0.json.gz, client 'b'", message)


def test_femnist_labels_that_are_texts(tmp_path):
    for side in ("train", "test"):
        write_leaf(tmp_path / side, {"b": (PAPER.reshape(2, -1).tolist(), ["A", "B"])})
    refuse("femnist", tmp_path, ".json.gz, client 'b'", "label", "'A'", "is not a whole number")
    refuse("femnist:paper=5", tmp_path, "paper=5; choose 0 or 1")


@pytest.mark.parametrize(
    "features, message",
    [
        ({"pixels": np.full(784, 1.7, np.float32), "label": np.array([1])}, "a pixel is NaN or outside"),
        ({"pixels": np.ones(784, np.float32), "label": np.array([], int)}, "0 labels and 1 images"),
        ({"pixels": np.ones(784, np.float32), "label": [b"A"]}, "is not a whole number"),
        ({"pixels": np.ones(784, np.float32), "label": np.array([3.7])}, "label 3.7"),
    ],
)
def test_femnist_in_tff_files(tmp_path, features, message):
    write_tff_sqlite(tmp_path / "emnist_all.sqlite", {"all_train": {"w": [features]}})
    refuse("femnist", tmp_path, "emnist_all.sqlite, split all_train, record 0 of client 'w'", message)


@pytest.mark.parametrize(
    "image, label, message",
    [
        (np.full((1, 32, 32, 3), 300), [1], "record 0: pixel 300 is not in 0..255"),
        (np.full((1, 32, 32, 3), -1), [1], "record 0: pixel -1 is not in 0..255"),
        (np.full((1, 32, 32, 3), 0.5), [1], "record 0: pixel 0.5 is not a whole number"),
        (np.zeros((1, 32, 32, 3)), [100], "record 0: label 100 is not in 0..99"),
        (np.zeros((1, 32, 32, 3)), [1.5], "record 0: label 1.5 is not a whole number"),
    ],
)
@pytest.mark.parametrize("form", ["fedjax", "hdf5"])
def test_cifar100_pam(tmp_path, form, image, label, message):
    for side in ("train", "test"):
        if form == "fedjax":
            content = {b"me": {"image": image, "label": np.array(label)}}
            write_fedjax_sqlite(tmp_path / f"federated_cifar100_{side}.sqlite", content)
        else:
            h5py = pytest.importorskip("h5py")
            with h5py.File(tmp_path / f"fed_cifar100_{side}.h5", "w") as file:
                file["examples/me/image"], file["examples/me/label"] = image, np.array(label)
    refuse("cifar100_pam", tmp_path, "cifar100_train", "client 'me'", message)


def test_empty_lists_in_tff_files(tmp_path):
    row = {"image": np.zeros(3072, int), "label": np.array([], int), "coarse_label": np.array([1])}
    write_tff_sqlite(tmp_path / "cifar100.sqlite", {"train": {"me": [row]}, "test": {"me": [row]}})
    refuse("cifar100_pam", tmp_path, "cifar100.sqlite, split train, record 0 of client 'me'", "one label")
    write_tff_sqlite(tmp_path / "shakespeare.sqlite", {"train": {"me": [{"snippets": []}]}})
    refuse("shakespeare", tmp_path, "shakespeare.sqlite, split train, record 0 of client 'me'")


def write_usps(folder, values_, labels):
    folder.mkdir(exist_ok=True)
    for side in ("train", "test"):
        (folder / f"usps-{side}-images-idx3-short").write_bytes(encode(values_))
        (folder / f"usps-{side}-labels-idx1-ubyte").write_bytes(encode(labels))


@pytest.mark.parametrize("name", ["usps", "digit5:domains=usps"])
def test_usps_values_beyond_a_thousand(tmp_path, name):
    grey = np.zeros((10, 16, 16), np.int16)
    labels = np.arange(10, dtype=np.uint8)
    write_usps(tmp_path / "usps", grey, labels)
    data.load(name, tmp_path)
    grey[7, 3, 3] = 1001
    write_usps(tmp_path / "usps", grey, labels)
    refuse(name, tmp_path, "usps-train-images-idx3-short", "record 7: grey value 1001 is not in -1000..1000")


def test_only_svhn_and_what_is_made_after_it_write_zero_as_ten(tmp_path):
    images = np.zeros((2, 28, 28, 1), np.uint8)
    for domain in digit5.DOMAINS:
        if domain in ("svhn", "synthdigits"):
            assert digit5_files.check_pair(images, [10, 3], "file", domain)[1].tolist() == [0, 3]
        else:
            with pytest.raises(UserError, match="file: record 0: label 10 is not in 0..9"):
                digit5_files.check_pair(images, [10, 3], "file", domain)
    folder = tmp_path / "mnist_m" / "mnist_m_train"
    folder.mkdir(parents=True)
    Image.fromarray(np.zeros((28, 28, 3), np.uint8)).save(folder / "0.png")
    Image.fromarray(np.zeros((27, 28, 3), np.uint8)).save(folder / "1.png")
    path = tmp_path / "mnist_m" / "mnist_m_train_labels.txt"
    for text, message in (("0.png 10", "label 10"), ("0.png \u00b2", "line 1"), ("0.png 1\n1.png 2", "27")):
        path.write_text(text)
        refuse("digit5:domains=mnist_m", tmp_path, "mnist_m_train", message)


def test_idx_labels_are_named_with_their_file(tmp_path):
    write(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(encode(np.array([1, 10, 2], np.uint8))))
    refuse("mnist", tmp_path, "t10k-labels-idx1-ubyte.gz: record 1: label 10 is not in 0..9")
    (tmp_path / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(encode(np.array([1, 2.5, 2], np.float32))))
    refuse("mnist", tmp_path, "t10k-labels-idx1-ubyte.gz: record 1: label 2.5 is not a whole number")
    (tmp_path / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(encode(np.zeros((3, 1), np.uint8))))
    refuse("mnist", tmp_path, "t10k-labels-idx1-ubyte.gz: an array of shape (3, 1)")
    (tmp_path / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(b"\0\0\x08\2" + b"\xff" * 8 + b"x"))
    refuse("mnist", tmp_path, "t10k-labels-idx1-ubyte.gz", "truncated or damaged")
    for labels, message in ((np.array([0, 1, 2]), "record 0: label -1"), (np.array([27, 1, 2]), "record 0: label 26")):
        write(tmp_path, "emnist-letters-", "test", n=(3, 3))
        name = "emnist-letters-train-labels-idx1-ubyte.gz"
        (tmp_path / name).write_bytes(gzip.compress(encode(labels.astype(np.uint8))))
        refuse("emnist:split=letters", tmp_path, name, message)


def test_labels_of_clients_are_bounded():
    stream = [("a", {"y": np.array([1, 2])}), ("b", {"y": np.array([[0, 1], [2, 7]])})]
    with pytest.raises(UserError, match="file, client 'b': record 1: label 7 is not in 0..4"):
        clients.flatten(stream, "file", 5)


@pytest.mark.parametrize(
    "options, message",
    [("tests=0", "tests=0"), ("users=-1", "users=-1"), ("length=0", "length=0"), ("vocabulary_size=0", "size=0")],
)
def test_stack_overflow_numbers(tmp_path, options, message):
    for side in ("train", "test"):
        write_fedjax_sqlite(tmp_path / f"stackoverflow_{side}.sqlite", {b"me": {"tokens": objects([b"x"])}})
    refuse(f"stackoverflow:{options}", tmp_path, message, "give a whole number > 0")


def test_a_stack_overflow_file_without_clients(tmp_path):
    for side in ("train", "test"):
        write_fedjax_sqlite(tmp_path / f"stackoverflow_{side}.sqlite", {})
    (tmp_path / "stackoverflow.word_count").write_text("x 5\n")
    refuse("stackoverflow:users=1,vocabulary_size=1", tmp_path, "stackoverflow_train.sqlite: it contains no clients")


@pytest.mark.parametrize(
    "given, message",
    [
        ([0, 1.5], "record 1: label 1.5 is not a whole number"),
        ([0, np.inf], "record 1: label inf is not a whole number"),
        ([0, np.nan], "record 1: label nan is not a whole number"),
        ([0, 3e9], "record 1: label 3000000000 is not in"),
        (["0"], "label '0' is not a whole number"),
        ([None], "label 'None' is not a whole number"),
        ([np.uint64(2**63)], "record 0: label 9223372036854775808 is not in"),
    ],
)
def test_labels_are_whole_numbers(given, message):
    with pytest.raises(ValueError, match=message):
        values.labels(np.array(given))
    assert values.labels([0, 2.0, 1], 3).tolist() == [0, 2, 1]
    assert values.pixels(np.array([255.0, 0]), (1, 1)).tolist() == [[[255]], [[0]]]
    assert mnist.usps_pixels(np.array([-1000, 1000]), "f").tolist() == [0, 255]


def test_sqlite_files_whose_text_is_damaged(tmp_path):
    path = tmp_path / "federated_emnist_train.sqlite"
    for side in ("train", "test"):
        write_fedjax_sqlite(tmp_path / f"federated_emnist_{side}.sqlite", {b"a": {"label": np.array([1])}})
    blob = path.read_bytes()
    path.write_bytes(blob.replace(b"CREATE TABLE", b"CREA\xff\xfe TAB"))
    refuse("femnist", tmp_path, "federated_emnist_train.sqlite: not a readable federated SQLite file")


@pytest.mark.parametrize("number", ["'many'", "1.5", "-2", "0"])
@pytest.mark.parametrize("form", ["fedjax", "tff"])
def test_sizes_that_are_no_numbers(tmp_path, form, number):
    table, path = "federated_data", tmp_path / "stackoverflow_train.sqlite"
    if form == "fedjax":
        for side in ("train", "test"):
            write_fedjax_sqlite(tmp_path / f"stackoverflow_{side}.sqlite", {b"me": {"tokens": objects([b"x"])}})
    else:
        table, path = "client_metadata", tmp_path / "stackoverflow.sqlite"
        write_tff_sqlite(path, {side: {"me": [{"tokens": b"x"}]} for side in ("train", "test")})
    (tmp_path / "stackoverflow.word_count").write_text("x 5\n")
    connection = sqlite3.connect(path)
    connection.execute(f"UPDATE {table} SET num_examples = {number}")
    connection.commit()
    connection.close()
    refuse("stackoverflow:users=1,vocabulary_size=1", tmp_path, f"{path.name}, client 'me': num_examples is")
