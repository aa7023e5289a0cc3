"""FEMNIST in its four published formats."""

import numpy as np
import pytest

from fedwin import data
from fedwin.errors import UserError
from tests.data.federation_files import WRITERS, characters, paper, write_femnist
from tests.data.files import write_fedjax_sqlite, write_leaf, write_tff_sqlite

pytestmark = pytest.mark.filterwarnings("ignore:.*unverified")


def leaf_case(change):
    train = {client: (paper(ink).tolist(), label.tolist()) for client, (ink, label) in characters().items()}
    change(train)
    return train


@pytest.mark.parametrize("form", ["fedjax", "tff", "tff_lzma", "hdf5", "leaf"])
def test_femnist_is_the_same_from_every_format(tmp_path, form):
    train, test = characters(), characters(dict.fromkeys(WRITERS, 1), 1)
    write_femnist(tmp_path, form, train, test)
    dataset = data.load("femnist", tmp_path)
    part = data.make_partition(dataset, None, None, 0)
    assert (
        dataset.num_classes == 62
        and dataset.train["x"].dtype == np.uint8
        and dataset.train["x"].shape == (9, 28, 28, 1)
    )
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
    held = {b"f0001_00": {"pixels": np.ones((2, 28, 28), np.float32), "label": np.array([3, 4])}}
    for side in ("train", "test"):
        write_fedjax_sqlite(tmp_path / f"federated_emnist_digitsonly_{side}.sqlite", held)
    assert data.load("femnist_digits", tmp_path).train["x"].max() == 0  # all paper
    assert data.load("femnist_digits:paper=0", tmp_path).train["x"].min() == 255
    with pytest.raises(UserError, match="femnist_digits: found no"):
        data.load("femnist_digits:form=leaf", tmp_path)
    with pytest.raises(UserError, match="form=csv"):
        data.load("femnist_digits:form=csv", tmp_path)


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda t: t["f0007_01"][0].pop(), "client 'f0007_01': 1 inputs for 2 labels"),
        (lambda t: t.update(f0007_01=([], [])), "f0007_01.*0 pixels|f0007_01.*no examples"),
        (lambda t: t["f2600_12"][1].__setitem__(0, 62), "label 62 is not in 0..61"),
        (lambda t: t["f2600_12"][0][0].__setitem__(5, float("nan")), "f2600_12.*NaN"),
        (lambda t: t["f2600_12"][0][0].__setitem__(5, 7.0), "f2600_12.*outside 0..1"),
        (lambda t: t["f2101_00"][0][0].pop(), "f2101_00"),
    ],
)
def test_bad_leaf_files_name_the_client(tmp_path, change, message):
    write_leaf(tmp_path / "train", leaf_case(change))
    write_leaf(tmp_path / "test", leaf_case(lambda t: None))
    with pytest.raises(UserError, match=message):
        data.load("femnist", tmp_path)


def test_a_leaf_client_in_two_files_is_refused(tmp_path):
    write_leaf(tmp_path / "train", leaf_case(lambda t: None))
    (tmp_path / "train" / "second.json.gz").write_bytes(next((tmp_path / "train").iterdir()).read_bytes())
    write_leaf(tmp_path / "test", leaf_case(lambda t: None))
    with pytest.raises(UserError, match="second.json.gz.*'f2101_00' occurs twice"):
        data.load("femnist", tmp_path)


def test_damaged_tff_files_are_named(tmp_path):
    write_tff_sqlite(
        tmp_path / "emnist_all.sqlite", {"all_train": {"f0001_00": [{"pixels": np.ones(784, np.float32)}]}}
    )
    with pytest.raises(UserError, match="emnist_all.sqlite.*'label'"):
        data.load("femnist", tmp_path)
    (tmp_path / "emnist_all.sqlite").unlink()
    write_tff_sqlite(tmp_path / "emnist_all.sqlite", {"train": {"f0001_00": [{"label": np.array([1])}]}})
    with pytest.raises(UserError, match="no split 'all_train'; it has train"):
        data.load("femnist", tmp_path)
    (tmp_path / "emnist_all.sqlite").unlink()
    write_tff_sqlite(tmp_path / "emnist_all.sqlite.lzma", {"all_train": {}}, compress=True)
    blob = (tmp_path / "emnist_all.sqlite.lzma").read_bytes()
    (tmp_path / "emnist_all.sqlite.lzma").write_bytes(blob[: len(blob) // 2])
    with pytest.raises(UserError, match="emnist_all.sqlite.lzma: .*(truncated|not a readable)"):
        data.load("femnist", tmp_path)
