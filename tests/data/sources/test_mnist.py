"""MNIST and its relatives in IDX files."""

import gzip
import lzma
import zipfile

import numpy as np
import pytest

from fedwin import data
from fedwin.data.formats import idx
from fedwin.errors import UserError
from tests.data.idx_files import CODES, encode, images, write, write_writers

pytestmark = pytest.mark.filterwarnings("ignore:.*unverified")


@pytest.mark.parametrize("dtype", CODES)
def test_idx_round_trip_of_every_type(dtype):
    array = (np.arange(24) - 12).astype(dtype).reshape(2, 3, 4)
    parsed = idx.parse(encode(array), "file")
    np.testing.assert_array_equal(parsed, array)
    assert parsed.dtype == np.dtype(dtype)


@pytest.mark.parametrize(
    "blob, message",
    [
        (b"\1\0\x08\1\0\0\0\0", "wrong magic number 01000801"),
        (b"\0\0\x07\1\0\0\0\0", "wrong magic number"),
        (b"", "wrong magic number .empty"),
        (encode(images(2))[:-1], "1583 bytes, but the header says 1584"),
        (encode(images(2)) + b"x", "1585 bytes"),
        (encode(images(2))[:9], "9 bytes"),
    ],
)
def test_damaged_idx_is_refused(blob, message):
    with pytest.raises(UserError, match=f"digits-idx.*{message}"):
        idx.parse(blob, "digits-idx")


@pytest.mark.parametrize("compress, suffix", [(gzip.compress, ".gz"), (lzma.compress, ".xz"), (bytes, "")])
@pytest.mark.parametrize("name, folder", [("mnist", "mnist"), ("fmnist", "fashion-mnist"), ("mnist", "")])
def test_mnist_and_fashion_mnist(tmp_path, name, folder, compress, suffix):
    written = write(tmp_path / folder, compress=compress, suffix=suffix)
    dataset = data.load(name, tmp_path)
    np.testing.assert_array_equal(dataset.train["x"][..., 0], written["train-images-idx3-ubyte"])
    np.testing.assert_array_equal(dataset.test["y"], written["t10k-labels-idx1-ubyte"])
    assert dataset.train["x"].dtype == np.uint8 and dataset.train["y"].dtype == np.int32 and not dataset.verified


def test_mnist_and_fashion_mnist_in_one_folder_are_not_confused(tmp_path):
    write(tmp_path / "fashion-mnist", n=(4, 2))
    write(tmp_path / "mnist", n=(6, 3))
    assert len(data.load("mnist", tmp_path).train["y"]) == 6 and len(data.load("fmnist", tmp_path).train["y"]) == 4


def test_unknown_checksums_warn(tmp_path):
    write(tmp_path)
    with pytest.warns(UserWarning, match="mnist: unverified"):
        data.load("mnist", tmp_path)


def test_emnist_is_transposed_and_letters_start_at_zero(tmp_path):
    written = write(tmp_path / "gzip", "emnist-letters-", "test", labels=26)
    for name in ("emnist-letters-train-labels-idx1-ubyte", "emnist-letters-test-labels-idx1-ubyte"):
        (tmp_path / "gzip" / f"{name}.gz").write_bytes(gzip.compress(encode(written[name] + 1)))
    dataset = data.load("emnist:split=letters", tmp_path)
    stored = written["emnist-letters-train-images-idx3-ubyte"]
    np.testing.assert_array_equal(dataset.train["x"][..., 0], stored.transpose(0, 2, 1))
    assert dataset.train["y"].tolist() == [0, 1, 2, 3, 4, 5] and dataset.num_classes == 26
    with pytest.raises(UserError, match="split=words"):
        data.load("emnist:split=words", tmp_path)


def test_emnist_from_its_zip(tmp_path):
    write(tmp_path / "gzip", "emnist-byclass-", "test")
    with zipfile.ZipFile(tmp_path / "gzip.zip", "w") as archive:
        for file in (tmp_path / "gzip").iterdir():
            archive.write(file, f"gzip/{file.name}")
            file.unlink()
    assert len(data.load("emnist", tmp_path).train["y"]) == 6 and data.load("emnist", tmp_path).num_classes == 62


def test_usps_maps_sixteen_bit_values_to_bytes(tmp_path):
    values = np.array([-1000, 0, 1000, -500], np.int16).reshape(4, 1, 1) * np.ones((1, 16, 16), np.int16)
    for split in ("train", "test"):
        (tmp_path / f"usps-{split}-images-idx3-short.gz").write_bytes(gzip.compress(encode(values)))
        (tmp_path / f"usps-{split}-labels-idx1-ubyte.gz").write_bytes(
            gzip.compress(encode(np.arange(4, dtype=np.uint8)))
        )
    dataset = data.load("usps", tmp_path)
    assert dataset.train["x"].shape == (4, 16, 16, 1) and dataset.train["x"][:, 0, 0, 0].tolist() == [0, 128, 255, 64]
    values[2] = 1001
    (tmp_path / "usps-train-images-idx3-short.gz").write_bytes(gzip.compress(encode(values)))
    with pytest.raises(UserError, match="usps-train-images.*record 2"):
        data.load("usps", tmp_path)


def test_mnist_by_writer_has_its_writers_as_clients(tmp_path):
    write_writers(tmp_path)
    dataset = data.load("mnist_writers", tmp_path)
    part = data.make_partition(dataset, None, None, 0)
    assert part.ids.tolist() == ["f0007", "f0031", "f2000"]
    assert [part.client(k).tolist() for k in range(3)] == [[1, 3, 4], [5], [0, 2]]
    # The fourth row of the test file belongs to an image that MNIST does not have.
    assert dataset.test_natural.ids.tolist() == ["f0004", "f0005"] and dataset.test_natural.sizes.tolist() == [1, 2]


def test_writers_of_other_images_are_refused(tmp_path):
    write_writers(tmp_path, classes=1)
    with pytest.raises(UserError, match="qmnist-train-labels.*record 0: class 1, but the image's label is 0"):
        data.load("mnist_writers", tmp_path)


def test_mismatched_and_missing_files_are_named(tmp_path):
    write(tmp_path)
    (tmp_path / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(encode(np.zeros(5, np.uint8))))
    with pytest.raises(UserError, match="train-labels.*5 labels for 6 images"):
        data.load("mnist", tmp_path)
    (tmp_path / "train-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(UserError, match="mnist: found no"):
        data.load("mnist", tmp_path)
    write(tmp_path)
    blob = (tmp_path / "train-images-idx3-ubyte.gz").read_bytes()
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(blob[:-30])
    with pytest.raises(UserError, match="train-images-idx3-ubyte.gz.*truncated"):
        data.load("mnist", tmp_path)
