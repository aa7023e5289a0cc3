"""Data sets from arrays, and the checks of every data set."""

import dataclasses
import pathlib
import zipfile

import fedjax
import numpy as np
import pytest

from fedwin import data
from fedwin.data.checks import classes_without_examples
from tests.data.files import balanced, refused


def arrays(n=6):
    return np.zeros((n, 2), np.float32), np.arange(n) % 3, np.zeros((3, 2), np.float32), np.arange(3)


def test_arrays_with_and_without_clients():
    dataset = data.from_arrays(*arrays(), num_classes=np.int64(3))
    assert repr(dataset.num_classes) == "3" and dataset.train["y"].dtype == np.int32 and dataset.natural is None
    swapped = data.from_arrays(arrays()[0].astype(">f4"), *arrays()[1:], clients=np.array([*"babbab"], object))
    assert swapped.train["x"].dtype == np.float32 and swapped.natural.ids.tolist() == ["a", "b"]
    dataset = data.from_arrays(*arrays(), clients=[2, 1, 2, 10, 1, 2])
    part = data.make_partition(dataset, None, None, 0)
    assert part.ids.tolist() == ["1", "2", "10"] and part.client(1).tolist() == [0, 2, 5]


def test_npz_files(tmp_path):
    x, y, tx, ty = arrays()
    np.savez(tmp_path / "data.npz", x_train=x, y_train=y, x_test=tx, y_test=ty, client_train=np.array(list("aabbcc")))
    for place in (tmp_path, tmp_path / "data.npz"):
        dataset = data.load("npz", place)
        assert not dataset.verified
        assert dataset.natural.ids.tolist() == ["a", "b", "c"] and len(dataset.test["y"]) == 3
    np.savez(tmp_path / "part.npz", x_train=x, y_train=y)
    refused("part.npz: x_test, y_test missing", data.load, "npz:file=part.npz", tmp_path)
    refused("gone.npz: no such file or folder; check --data_dir", data.load, "npz", tmp_path / "gone.npz")
    (tmp_path / "table.csv").write_text("age,label\n31,0\n")
    refused(r"table.csv: not a .* \(File is not a zip file\); write it with", data.load, "npz:file=table.csv", tmp_path)
    np.savez(tmp_path / "more.npz", x_train=x, y_train=y, x_test=tx, y_test=ty, clients_train=y)
    refused("more.npz: clients_train has no effect", data.load, "npz:file=more.npz", tmp_path)
    with zipfile.ZipFile(tmp_path / "part.npz", "a") as archive:
        archive.writestr("x_test.npy", "text")
    refused("part.npz: not a readable .*'x_test' is no array", data.load, "npz:file=part.npz", tmp_path)
    np.savez(tmp_path / "objects.npz", x_train=np.array([{}], object))
    refused(r"objects.npz: .*text with .astype.str.", data.load, "npz:file=objects.npz", tmp_path)


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda a: a[2].__setitem__((1, 0), np.inf), "test, record 1: 'x' has NaN or inf"),
        (lambda a: a[3].__setitem__(2, 3), "test, record 2: label 3 is not in 0..2"),
        (lambda a: a[1].__setitem__(5, -1), "train, record 5: label -1 .*drop unlabeled examples, or use np.search"),
    ],
)
def test_inconsistent_arrays_are_refused(change, message):
    given = list(arrays())
    change(given)
    refused(message, data.from_arrays, *given)
    refused("give one for each", data.from_arrays, *arrays(), clients=[1, 2])
    x = np.zeros([6, 3, 8, 8], np.uint8)
    refused(r"\(3, 8, 8\), channels first; give x.transpose", data.from_arrays, x, *arrays()[1:2], x[:3], arrays()[3])
    given = [*arrays()[:2], arrays()[2].astype(np.uint8), arrays()[3]]
    refused("'x' is float32 in train and uint8 in test", data.from_arrays, *given)


@pytest.mark.parametrize(
    "clients, message",
    [
        (np.array([0, 1, 1, np.inf, 1, 1]), "record 3: the client id is inf"),
        (np.array([0, None, 1, 0, 1, 1]), "client ids are object; give whole numbers or text"),
    ],
)
def test_clients_that_are_no_ids_are_refused(tmp_path, clients, message):
    x, y, tx, ty = arrays()
    refused(message, data.from_arrays, x, y, tx, ty, clients=clients)
    if clients.dtype != object:
        np.savez(tmp_path / "data.npz", x_train=x, y_train=y, x_test=tx, y_test=ty, client_train=clients)
        refused(message, data.load, "npz", tmp_path)


@pytest.mark.parametrize("name", ["cifar10", "pacs", "npz", "femnist", "landmarks"])
@pytest.mark.parametrize("method", ["iterdir", "exists"])
def test_a_folder_that_cannot_be_listed_is_one_line(tmp_path, monkeypatch, name, method):
    def refuse(self):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(pathlib.Path, method, refuse)
    refused("can.t be read .Permission denied.; check --data_dir", data.load, name, tmp_path)


def with_clients(sizes, ids):
    return dataclasses.replace(balanced(10, 20), natural=data.Partition.consecutive(sizes, ids=np.array(ids)))


@pytest.mark.parametrize(
    "dataset, message",
    [
        (with_clients([2, 0], ["a", "b"]), "client b has no examples .*remove it from the files of 'labeled'"),
        (with_clients([2, 1], [b"a", b"a"]), "client id a occurs twice"),
        (dataclasses.replace(balanced(10, 20), test={"y": np.zeros(1, int)}), "features are y; .*'x' and 'y'"),
        (dataclasses.replace(balanced(10, 20), mean=(0, 1), std=(1, 1)), r"mean=\(0, 1\) must be 1 finite numbers"),
        (dataclasses.replace(balanced(10, 20), mean=0, std=[[1], [2]]), r"std=.* must be 1 positive numbers"),
        (dataclasses.replace(balanced(10, 20), mean=(0,), std=(0,)), r"std=\(0,\) must be 1 positive numbers"),
        (dataclasses.replace(balanced(10, 20), mean=0.5), "mean is given alone; give mean and std, or neither"),
    ],
)
def test_checks_of_every_data_set(dataset, message):
    refused(message, data.check, dataset)


def test_tokens_are_ids_of_the_vocabulary():
    x = np.array([[1, 2, 0], [1, 3, 4]])
    assert data.from_arrays(x, x, x, x).task == "sequence"
    refused("test, record 1: token 5 is not in 0..4", data.from_arrays, x, x, np.where(x == 3, 5, x), x)
    refused("train, record 0: token -1 is not in 0..4", data.from_arrays, x - (x == 0), x, x, x)
    refused("train: tokens are uint8, .* int32", data.from_arrays, x.astype(np.uint8), x, x, x)
    assert data.from_arrays(x / 2, x, x / 2, x).task == "sequence"  # a series of measurements


@pytest.mark.parametrize(
    "labels, message",
    [
        (np.eye(3, dtype=int), "one-hot labels: pass labels.argmax"),
        (np.eye(3, dtype=bool), "one-hot labels: pass labels.argmax"),
        (np.eye(3), "one-hot labels: pass labels.argmax"),
        (2 * np.eye(3, dtype=int), "one-hot labels: pass labels.argmax"),
        (np.array([[1, 1], [0, 0], [0, 1]]), "are all 0 or 1: give each example one class"),
        (np.arange(3)[:, None], "a column: pass labels"),
        (np.array(["ant", "bee", "cat"]), "<U3; they must be whole numbers, such as np.searchsorted"),
    ],
)
def test_labels_that_are_no_sequence_are_refused_on_every_path(tmp_path, labels, message):
    x, y, tx, _ = arrays()
    federated = fedjax.InMemoryFederatedData({"ann": {"x": tx, "y": labels}})
    np.savez(tmp_path / "data.npz", x_train=tx, y_train=labels, x_test=tx, y_test=labels)
    refused(message, data.from_arrays, x, labels[y], tx, labels)
    refused(message, data.load, "npz", tmp_path)
    refused(message, data.from_fedjax, federated, federated)
    direct = data.Dataset("own", {"x": tx, "y": labels}, {"x": tx, "y": labels}, 3)
    refused(message if labels.ndim > 1 else "whole numbers", data.check, direct)
    if labels.dtype == int:
        assert data.load("npz:task=sequence", tmp_path).task == "sequence"


def test_a_task_has_labels_of_its_shape():
    x, y, tx, ty = arrays()
    refused(r"shape \(6, 1, 2\); a sequence has", data.from_arrays, x, y[:, None, None] + [0, 1], tx, ty)
    refused(r"shape \(6,\); a sequence has", data.from_arrays, x, y, tx, ty, task="sequence")
    refused(r"shape \(6, 2\); a sequence has", data.from_arrays, x, y[:, None] + [0, 1], tx, ty, task="classification")
    refused("Did you mean 'sequence'", data.from_arrays, x, y, tx, ty, task="sequences")
    shifted = data.from_arrays(x, 2 * y + 1, tx, ty)
    assert classes_without_examples(shifted) == [0, 2, 4]
