"""Damaged and inconsistent input files: one line with file and record."""

import dataclasses
import json
import pickle

import numpy as np
import pytest

from fedwin import data
from fedwin.data.dataset import offsets
from fedwin.data.formats import clients, files, leaf, tff
from fedwin.data.partitions.pack import finish
from fedwin.data.sources import digit5_files
from fedwin.errors import UserError
from tests.data.balanced import balanced, labelled
from tests.data.files import objects, write_fedjax_sqlite, write_leaf, write_tff_sqlite

pytestmark = pytest.mark.filterwarnings("ignore:.*unverified")


def two(**second):
    first = {"x": np.zeros((2, 3)), "y": np.zeros(2, int)}
    return [("a", first), ("b", {**first, **second})]


@pytest.mark.parametrize(
    "stream, message",
    [
        ([], "contains no clients"),
        (two()[:1] * 2, "client id 'a' occurs twice"),
        (two(y=np.zeros(1, int)), "client 'b': features differ in length"),
        (two(z=np.zeros(2)), "client 'b': features .'x', 'y', 'z'."),
        (two(x=np.zeros((2, 4))), "client 'b': 'x' has shape .4,., but .3,. before"),
        (two(x=np.zeros((0, 3)), y=np.zeros(0, int)), "client 'b': it has no examples"),
    ],
)
def test_streams_of_clients(stream, message):
    with pytest.raises(UserError, match=f"file.*{message}"):
        clients.flatten(stream, "file")


def with_clients(sizes, ids):
    dataset = balanced(10, 20)
    offset = offsets(sizes)
    natural = data.Partition(np.arange(offset[-1], dtype=np.int32), offset, ids=np.array(ids))
    return dataclasses.replace(dataset, natural=natural)


@pytest.mark.parametrize(
    "dataset, message",
    [
        (with_clients([2, 0], ["a", "b"]), "client b has no training example"),
        (with_clients([2, 1], ["a", "a"]), "client id a occurs twice"),
        (
            dataclasses.replace(balanced(10, 20), test={"x": np.zeros((0, 1)), "y": np.zeros(0, int)}),
            "there is no example",
        ),
        (dataclasses.replace(balanced(10, 20), test={"y": np.zeros(1, int)}), "features are y; 'x' and 'y' are needed"),
        (labelled([0, 1], 2, y=np.array([0.5, 1.0])), "whole numbers"),
    ],
)
def test_checks_of_every_data_set(dataset, message):
    with pytest.raises(UserError, match=message):
        data.check(dataset)


def test_deals_of_examples_twice_or_out_of_range():
    dataset = balanced(10, 20)
    with pytest.raises(UserError, match="assigns example 3 to more than one client"):
        finish(dataset, data.Partition.from_lists([[3, 1], [3]]), "mine")
    with pytest.raises(UserError, match="contains example 20, but 'labelled' has only 20"):
        finish(dataset, data.Partition.from_lists([[20]]), "mine")
    with pytest.raises(UserError, match="examples per client"):
        data.make_partition(dataset, "dirichlet:alpha=1,per_client=0", 2, 0)


def test_partitions_that_do_not_fit_the_data_set():
    domains = labelled(np.arange(20) % 10, 10, domain=np.arange(20, dtype=np.int32) % 2)
    with pytest.raises(UserError, match="3 clients; give a multiple of the 2 domains"):
        data.make_partition(domains, "domain", 3, 0)
    with pytest.raises(UserError, match="does not split labels"):
        data.make_partition(domains, "domain:inner=natural", 4, 0)
    broken = labelled([0, 1, 0], 2, coarse=np.array([0, 1, 1], np.int32))
    with pytest.raises(UserError, match="belongs to two coarse labels"):
        data.make_partition(broken, "pachinko", 1, 0)
    coarse = labelled(np.arange(40) % 2, 2, fine=np.arange(40, dtype=np.int32) % 4)
    assert data.make_partition(coarse, "pachinko", 4, 0).sizes.tolist() == [10] * 4
    assert data.make_partition(balanced(10, 200), "yurochkin:alpha=inf", 10, 0).sizes.sum() == 200
    for fraction in (-0.1, 1.0):
        with pytest.raises(UserError, match=f"val_fraction={fraction}"):
            data.split_validation(data.make_partition(coarse, "iid", 2, 0), fraction, 0)


@pytest.mark.parametrize(
    "images, labels, message",
    [
        (np.zeros((2, 5)), [0, 1], "is not a set of grey or colour images"),
        (np.zeros((2, 8, 8)), [0], "1 labels for 2 images"),
        (np.zeros((2, 8, 8)), [0, 10], "record 1: label 10 is not in 0..9"),
        (np.zeros((2, 8, 8)), [0, 3.7], "record 1: label 3.7 is not a whole number"),
        (np.zeros((2, 8, 8), object), [0, 1], "pixels are object, not numbers"),
        (np.full((2, 8, 8), 300.0), [0, 1], "outside 0..255"),
    ],
)
def test_digit_five_pairs(images, labels, message):
    with pytest.raises(UserError, match=f"part.pkl: .*{message}"):
        digit5_files.check_pair(images, labels, "part.pkl")


def test_digit_five_layouts_are_unified():
    planar = np.zeros((2, 3, 28, 28), np.uint8)
    planar[:, 1] = 7
    assert digit5_files.check_pair(planar, [0, 9], "p")[0][0, 0, 0].tolist() == [0, 7, 0]
    unit = digit5_files.check_pair(np.full((1, 28, 28, 1), 0.5), [10], "p", "svhn")
    assert unit[0][0, 3, 3].tolist() == [128] * 3 and unit[1].tolist() == [0]
    with pytest.raises(UserError, match="not a pair"):
        digit5_files.from_pickle(pickle.dumps([1, 2, 3]), "p")


def test_leaf_files_that_are_not(tmp_path):
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(UserError, match="a.json: not a LEAF file"):
        list(leaf.read(tmp_path))
    (tmp_path / "a.json").write_text(json.dumps({"users": ["u"], "user_data": {}}))
    with pytest.raises(UserError, match="a.json, client 'u': it has no x and y"):
        list(leaf.read(tmp_path))


def test_hdf5_files_that_are_not(tmp_path):
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "fed_cifar100_train.h5"
    path.write_bytes(b"nothing")
    with pytest.raises(UserError, match="not a readable HDF5"):
        list(tff.read_hdf5(path, dict))
    with h5py.File(path, "w") as file:
        file["other"] = 1
    with pytest.raises(UserError, match="no group 'examples'"):
        list(tff.read_hdf5(path, dict))
    with h5py.File(path, "w") as file:
        file["examples/me/pixels"] = np.zeros(3)
    with pytest.raises(UserError, match="client 'me': there is no 'label'"):
        list(tff.read_hdf5(path, lambda features: {"y": features["label"]}))


def test_the_missing_hdf5_package_is_named(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(UserError, match="pip install h5py"):
        list(tff.read_hdf5("file.h5", dict))


def test_cifar100_pam_records(tmp_path):
    bad = {"image": np.full(3072, 256), "label": np.array([1]), "coarse_label": np.array([1])}
    write_tff_sqlite(tmp_path / "cifar100.sqlite", {"train": {"me": [bad]}, "test": {"me": [bad]}})
    with pytest.raises(
        UserError, match="cifar100.sqlite, split train, record 0 of client 'me': .* pixel 256 is not in"
    ):
        data.load("cifar100_pam", tmp_path)
    (tmp_path / "cifar100.sqlite").unlink()
    for side in ("train", "test"):
        write_fedjax_sqlite(tmp_path / f"federated_cifar100_{side}.sqlite", {b"me": {"image": np.zeros((1, 5))}})
    with pytest.raises(UserError, match="federated_cifar100_train.sqlite, client 'me': there is no 'y'"):
        data.load("cifar100_pam", tmp_path)
    with pytest.raises(UserError, match="cifar100_pam: found no"):
        data.load("cifar100_pam", tmp_path / "..")


def test_stackoverflow_files(tmp_path):
    with pytest.raises(UserError, match="stackoverflow: found no"):
        data.load("stackoverflow", tmp_path)
    for side in ("train", "test"):
        write_fedjax_sqlite(tmp_path / f"stackoverflow_{side}.sqlite", {b"me": {"title": objects([b"x"])}})
    with pytest.raises(UserError, match="found no stackoverflow.word_count"):
        data.load("stackoverflow", tmp_path)
    (tmp_path / "stackoverflow.word_count").write_text("the 5\nthe 4\n")
    with pytest.raises(UserError, match="a word occurs twice"):
        data.load("stackoverflow:users=1,vocabulary_size=2", tmp_path)
    with pytest.raises(UserError, match="client 'me': no 'tokens', only title"):
        data.load("stackoverflow:users=1,vocabulary_size=1", tmp_path)


def test_leaf_pools_that_are_too_small(tmp_path):
    text = "abcdefgh" * 20
    for side in ("train", "test"):
        write_leaf(tmp_path / side, {"me": ([text[:80], text[1:81]], [text[80], text[81]])})
    with pytest.raises(UserError, match="50 windows are needed, but all roles have only 2"):
        data.load("shakespeare_leaf:clients=5,train=10,test=1,iid=true", tmp_path)


def test_archives_and_compressed_files(tmp_path):
    for name in ("a.tar", "b.zip"):
        (tmp_path / name).write_bytes(b"PK no archive")
        with pytest.raises(UserError, match=f"{name}: not a readable tar or zip archive"):
            files.members(tmp_path / name)
    for magic in (b"\x1f\x8b", b"\xfd7zXZ\x00", b"BZh9"):
        with pytest.raises(UserError, match="file: the compressed file is truncated or damaged"):
            files.decode(magic + b"rubbish" * 9, "file")
    with pytest.raises(UserError, match="x.lzma: the compressed file"):
        files.decode(b"\x5d\0\0\x80\0 cut", "x.lzma")
    assert files.plain("a/b/train.bin.xz") == "train.bin"


def test_the_report_of_a_partition_without_one_is_nobodys_to_write():
    part = data.Partition(np.arange(2, dtype=np.int32), np.array([0, 2]))
    assert part.report == {}
    with pytest.raises(TypeError):
        part.report["left_out"] = 1
