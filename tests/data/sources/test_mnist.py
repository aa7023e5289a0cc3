"""MNIST and its relatives in IDX files."""

import gzip

import numpy as np
import pytest

from fedwin import data
from fedwin.data.formats.idx import parse
from tests.data.files import IDX_TYPES, idx, refused, write_idx, write_usps, write_writers


@pytest.mark.parametrize("dtype", IDX_TYPES)
def test_idx_round_trip_of_every_type(dtype):
    array = (np.arange(24) - 12).astype(dtype).reshape(2, 3, 4)
    np.testing.assert_array_equal(parse(idx(array), "file"), array)
    assert parse(idx(array), "file").dtype == np.dtype(dtype)


IMAGES = idx(np.zeros((2, 28, 28), np.uint8))


@pytest.mark.parametrize(
    "blob, message",
    [
        (b"\1\0\x08\1\0\0\0\0", "wrong magic number 01000801"),
        (b"", "wrong magic number .empty"),
        (IMAGES[:-1], "1583 bytes, but the header says 1584"),
        (b"\0\0\x08\2" + b"\xff" * 8 + b"x", "truncated or damaged"),
    ],
)
def test_damaged_idx_is_refused(blob, message):
    refused(f"digits-idx.*{message}", parse, blob, "digits-idx")


@pytest.mark.parametrize(
    "name, folder, suffix", [("mnist", "mnist", ".gz"), ("fmnist", "fashion-mnist", ".xz"), ("mnist", "", "")]
)
def test_mnist_and_fashion_mnist(tmp_path, name, folder, suffix):
    written = write_idx(tmp_path / folder, suffix=suffix)
    write_idx(tmp_path / {"mnist": "fashion-mnist", "fmnist": "mnist"}[name], n=(9, 9))  # not confused with the other
    with pytest.warns(UserWarning, match=f"{name}: unverified"):
        dataset = data.load(name, tmp_path)
    np.testing.assert_array_equal(dataset.train["x"][..., 0], written["train-images-idx3-ubyte"])
    np.testing.assert_array_equal(dataset.test["y"], written["t10k-labels-idx1-ubyte"])
    assert dataset.train["x"].dtype == np.uint8 and dataset.train["y"].dtype == np.int32 and not dataset.verified


def test_emnist_is_transposed_and_letters_start_at_zero(tmp_path):
    written = write_idx(tmp_path / "gzip", "emnist-letters-", "test", labels=26)
    name = "emnist-letters-{}-labels-idx1-ubyte"
    for side in ("train", "test"):
        path = tmp_path / "gzip" / f"{name.format(side)}.gz"
        path.write_bytes(gzip.compress(idx(written[name.format(side)] + 1)))
    dataset = data.load("emnist:split=letters", tmp_path)
    stored = written["emnist-letters-train-images-idx3-ubyte"]
    np.testing.assert_array_equal(dataset.train["x"][..., 0], stored.transpose(0, 2, 1))
    assert dataset.train["y"].tolist() == [0, 1, 2, 3, 4, 5] and dataset.num_classes == 26
    for labels, message in (([0, 1, 2, 3, 4, 5], "label -1"), ([27, 1, 2, 3, 4, 5], "label 26")):
        path = tmp_path / "gzip" / f"{name.format('train')}.gz"
        path.write_bytes(gzip.compress(idx(np.array(labels, np.uint8))))
        refused(f"{path.name}: record 0: {message}", data.load, "emnist:split=letters", tmp_path)


@pytest.mark.parametrize("name", ["usps", "digit5:domains=usps,per_domain=2"])
def test_usps_maps_sixteen_bit_values_to_bytes(tmp_path, name):
    values = np.repeat([-1000, 0, 1000, -500], 3).astype(np.int16).reshape(12, 1, 1) * np.ones((1, 16, 16), np.int16)
    labels = np.arange(12, dtype=np.uint8) % 10
    write_usps(tmp_path / "usps", values, labels)
    dataset = data.load(name, tmp_path)
    if name == "usps":
        assert dataset.train["x"].shape == (12, 16, 16, 1)
        assert dataset.train["x"][::3, 0, 0, 0].tolist() == [0, 128, 255, 64]
    values[7, 3, 3] = 1001
    write_usps(tmp_path / "usps", values, labels)
    refused("usps-train-images-idx3-short: record 7: gray value 1001 is not in", data.load, name, tmp_path)


def test_mnist_by_writer_has_its_writers_as_clients(tmp_path):
    write_writers(tmp_path)
    dataset = data.load("mnist_writers", tmp_path)
    part = data.make_partition(dataset, None, None, 0)
    assert part.ids.tolist() == ["f0007", "f0031", "f2000"]
    assert [part.client(k).tolist() for k in range(3)] == [[1, 3, 4], [5], [0, 2]]
    # The fourth row of the test file belongs to an image that MNIST does not have.
    assert dataset.test_natural.ids.tolist() == ["f0004", "f0005"] and dataset.test_natural.sizes.tolist() == [1, 2]
    write_writers(tmp_path, classes=1)
    refused("qmnist-train-labels.*record 0: class 1, but the image's label is 0", data.load, "mnist_writers", tmp_path)


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("t10k-labels-idx1-ubyte", np.array([1, 10, 2], np.uint8), "record 1: label 10 is not in 0..9"),
        ("train-labels-idx1-ubyte", np.zeros(5, np.uint8), "5 labels for 6 images"),
    ],
)
def test_wrong_and_missing_files_are_named(tmp_path, name, content, message):
    write_idx(tmp_path, suffix="")
    (tmp_path / name).write_bytes(idx(content))
    refused(f"{name}: {message}", data.load, "mnist", tmp_path)
    (tmp_path / name).unlink()
    refused("mnist: found no", data.load, "mnist", tmp_path)
