"""CIFAR-10 and CIFAR-100 from small archives in both original formats."""

import gzip
import hashlib
import os
import pickle
import warnings

import numpy as np
import pytest

from fedwin import data
from fedwin.data.sources import cifar
from tests.data.files import COMPRESS, binary, planes, refused, taken, tarred


def write_cifar10(folder, suffix=".bin", compress=""):
    """Six files of seven records in the binary or the python layout; returns name -> (labels, planes, content)."""
    folder.mkdir(parents=True, exist_ok=True)
    contents = {}
    for i, name in enumerate([f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]):
        labels, pixels = (np.arange(7) + i) % 10, planes(7, i)
        blob = pickle.dumps({b"labels": labels.tolist(), b"data": pixels, b"batch_label": b"b"}, protocol=2)
        blob = binary(labels, pixels) if suffix else blob
        (folder / (name + suffix + compress)).write_bytes(COMPRESS[compress](blob))
        contents[name] = (labels, pixels, blob)
    return contents


def know(monkeypatch, name, contents):
    """Publishes the md5 of contents: file -> bytes."""
    sums = {file: ("md5", hashlib.md5(blob).hexdigest()) for file, blob in contents.items()}
    monkeypatch.setitem(data.DATASETS.entries[name].facts, "checksums", sums)


def expect(dataset, contents):
    labels, pixels = (np.concatenate([contents[f"data_batch_{i}"][part] for i in range(1, 6)]) for part in (0, 1))
    np.testing.assert_array_equal(dataset.train["y"], labels)
    assert dataset.train["x"].dtype == np.uint8 and dataset.train["y"].dtype == np.int32
    # Pixel (row 2, column 5) of channel 1 lies at 1024 + 2 * 32 + 5 of the planes.
    np.testing.assert_array_equal(dataset.train["x"][:, 2, 5, 1], pixels[:, 1024 + 2 * 32 + 5])
    np.testing.assert_array_equal(dataset.train["x"].transpose(0, 3, 1, 2).reshape(-1, 3072), pixels)
    np.testing.assert_array_equal(dataset.test["y"], contents["test_batch"][0])


@pytest.mark.parametrize("where, compress", [("", ""), ("cifar10/cifar-10-batches-bin", ".xz")])
def test_binary_files_are_found_in_the_folder_or_below_it(tmp_path, where, compress):
    contents = write_cifar10(tmp_path / where, compress=compress)
    with pytest.warns(UserWarning, match="unverified"):
        dataset = data.load("cifar10", tmp_path)
    expect(dataset, contents)
    assert not dataset.verified


def test_binary_archive(tmp_path, monkeypatch):
    contents = write_cifar10(tmp_path / "b")
    path = tmp_path / "cifar-10-binary.tar.gz"
    tarred(path, taken(tmp_path / "b"), "w:gz")
    for place in (tmp_path, path):
        expect(data.load("cifar10", place), contents)
    know(monkeypatch, "cifar10", {path.name: path.read_bytes()})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert data.load("cifar10", tmp_path).verified  # an archive's checksum verifies its files
    path.write_bytes(path.read_bytes()[:-4000])
    refused("cifar-10-binary.tar.gz: not a readable tar or zip archive", data.load, "cifar10", tmp_path)


@pytest.mark.parametrize("suffix, compress", [(".bin", ".gz"), ("", ".xz")])
def test_matching_checksums_are_verified(tmp_path, monkeypatch, suffix, compress):
    contents = write_cifar10(tmp_path, suffix=suffix, compress=compress)
    know(monkeypatch, "cifar10", {name + suffix: blob for name, (_, _, blob) in contents.items()})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dataset = data.load("cifar10", tmp_path)
    expect(dataset, contents)
    assert dataset.verified


def test_pickles_of_unknown_checksum_are_not_opened_and_none_runs_code(tmp_path, monkeypatch):
    contents = {name: blob for name, (_, _, blob) in write_cifar10(tmp_path, suffix="").items()}
    refused("data_batch_1: md5 .*not opened", data.load, "cifar10", tmp_path)
    contents["data_batch_2"] = pickle.dumps({b"data": os.system}, protocol=2)
    (tmp_path / "data_batch_2").write_bytes(contents["data_batch_2"])
    know(monkeypatch, "cifar10", contents)
    refused("data_batch_2.*system", data.load, "cifar10", tmp_path)


def test_truncated_missing_and_wrong_files_are_named(tmp_path):
    write_cifar10(tmp_path)
    path = tmp_path / "data_batch_3.bin"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    refused("data_batch_3.bin: 21510 bytes", data.load, "cifar10", tmp_path)
    path.write_bytes(binary([3, 11], planes(2)))
    refused("data_batch_3.bin: record 1: label 11 is not in 0..9", data.load, "cifar10", tmp_path)
    path.unlink()
    (tmp_path / "data_batch_3.bin.gz").write_bytes(gzip.compress(whole)[:-20])
    refused("data_batch_3.bin.gz.*truncated", data.load, "cifar10", tmp_path)
    (tmp_path / "data_batch_3.bin.gz").unlink()
    refused("found no cifar-10-binary.tar.gz.*data_batch_3.bin.*cs.toronto.edu", data.load, "cifar10", tmp_path)


@pytest.mark.parametrize("label, other, classes", [("fine", "coarse", 100), ("coarse", "fine", 20)])
def test_cifar100_has_both_labels_coarse_first(tmp_path, label, other, classes):
    columns = np.array([[4, 0], [1, 1], [14, 2], [8, 99]])
    (tmp_path / "train.bin").write_bytes(binary(columns, planes(4)))
    (tmp_path / "test.bin").write_bytes(binary(columns[:2], planes(2)))
    dataset = data.load(f"cifar100:label={label}", tmp_path)
    index = {"coarse": 0, "fine": 1}
    np.testing.assert_array_equal(dataset.train["y"], columns[:, index[label]])
    np.testing.assert_array_equal(dataset.train[other], columns[:, index[other]])
    assert dataset.num_classes == classes == len(dataset.class_names)
    assert dataset.train["x"].shape == (4, 32, 32, 3)


def test_cifar100_pickles_and_constants(tmp_path, monkeypatch):
    blob = pickle.dumps({b"fine_labels": [7, 9], b"coarse_labels": [1, 3], b"data": planes(2)}, protocol=2)
    for name in ("train", "test"):
        (tmp_path / name).write_bytes(blob)
    know(monkeypatch, "cifar100", dict.fromkeys(("train", "test"), blob))
    dataset = data.load("cifar100:constants=cifar10", tmp_path)
    assert dataset.train["y"].tolist() == [7, 9] and dataset.mean == cifar.CONSTANTS["cifar10"][0]


def test_smaller_images_and_the_first_of_each_class(tmp_path):
    contents = write_cifar10(tmp_path)
    images = np.concatenate([contents[f"data_batch_{i}"][1] for i in range(1, 6)]).reshape(-1, 3, 32, 32)
    for size in (16, 8):
        block = 32 // size
        small = data.load(f"cifar10:size={size}", tmp_path).train["x"]
        assert small.shape == (35, size, size, 3) and small.dtype == np.uint8
        corner = images[:, :, 5 * block : 6 * block, 3 * block : 4 * block].astype(float).mean((2, 3))
        np.testing.assert_array_equal(small[:, 5, 3], np.floor(corner + 0.5))
    complete, part = (data.load(f"cifar10:per_class={count}", tmp_path).train for count in (0, 2))
    for label in range(10):
        first = complete["x"][complete["y"] == label][:2]
        np.testing.assert_array_equal(part["x"][part["y"] == label], first)
