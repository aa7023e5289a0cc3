"""FEMNIST in FedJAX's files and in LEAF's JSON."""

import numpy as np
import pytest

from fedwin import data
from tests.data.files import WRITERS, characters, refused, write_both, write_femnist, write_leaf

PAPER = np.ones((2, 28, 28), np.float32)
TORN = PAPER.copy()
TORN[1, 5, 5] = np.nan


def write_digits(folder):
    write_both(folder, "federated_emnist_digitsonly", {b"f0001_00": {"pixels": PAPER, "label": np.array([3, 4])}})


@pytest.mark.parametrize("form", ["fedjax", "leaf"])
def test_femnist_is_the_same_from_every_form(tmp_path, form):
    train, test = characters(), characters(dict.fromkeys(WRITERS, 1), 1)
    write_femnist(tmp_path, form, train, test)
    dataset = data.load("femnist", tmp_path)
    part = data.make_partition(dataset, None, None, 0)
    assert dataset.num_classes == 62 and dataset.train["x"].dtype == np.uint8
    assert dataset.train["x"].shape == (9, 28, 28, 1)
    found = {}
    for k, client in enumerate(part.ids):
        name = (client.decode() if isinstance(client, bytes) else str(client)).rsplit(":", 1)[-1]
        found[name] = part.domain[k]
        ink, label = train[name]
        np.testing.assert_array_equal(dataset.train["x"][part.client(k)].reshape(-1, 784), ink)
        np.testing.assert_array_equal(dataset.train["y"][part.client(k)], label)
    assert found == {"f2101_00": 0, "f0007_01": 1, "f2600_12": 1}
    assert len(dataset.test["y"]) == 3 and dataset.test_natural.num_clients == 3


def test_femnist_digits_and_forced_forms(tmp_path):
    (tmp_path / "femnist").mkdir()
    write_digits(tmp_path)
    assert data.load("femnist_digits", tmp_path).train["x"].max() == 0  # all paper
    assert data.load("femnist_digits:paper=0", tmp_path).train["x"].min() == 255
    refused("femnist_digits: found no LEAF JSON .*/leaf", data.load, "femnist_digits:form=leaf", tmp_path)
    refused("found no .* Fetch .*_emnist_digitsonly_", data.load, "femnist_digits", tmp_path / "femnist")


@pytest.mark.parametrize(
    "pixels, label, message",
    [
        (TORN, [1, 2], "record 1: a pixel is NaN or outside 0..1"),
        (PAPER, ["A", "B"], "label 'A' is not a whole number"),
    ],
)
def test_wrong_records_are_named(tmp_path, pixels, label, message):
    good = {"pixels": PAPER, "label": np.array([1, 2])}
    if label != ["A", "B"]:
        write_both(tmp_path, "federated_emnist", {b"a": good, b"b": {"pixels": pixels, "label": np.array(label)}})
        refused(f"federated_emnist_train.sqlite, client 'b': {message}", data.load, "femnist:paper=1", tmp_path)
    write_leaf(tmp_path / "train", {"b": (pixels.reshape(2, -1).tolist(), label)})
    write_leaf(tmp_path / "test", {"b": (PAPER.reshape(2, -1).tolist(), [1, 2])})
    place = "all_data_0_niid_0_keep_0.json.gz, client 'b'"
    refused(f"{place}: {message}", data.load, "femnist:form=leaf,paper=1", tmp_path)
