"""Packed caches."""

import json
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from fedwin import data
from fedwin.data import cache, example_source
from fedwin.errors import UserError

CHOICES = [
    "digits",
    "femnist_synthetic:clients=10,n=100",
    "shakespeare_synthetic:clients=5,rows=20",
    "pacs_synthetic:per_domain=5,tests=2,size=16",
    "landmarks_synthetic:clients=5,n=20,size=16",
]


def run(module, *arguments):
    return subprocess.run([sys.executable, "-m", f"experiments.{module}", *arguments], capture_output=True, text=True)


@pytest.mark.parametrize("text", CHOICES)
def test_a_cache_holds_the_whole_data_set(tmp_path, text):
    dataset = data.load(text)
    rows = []
    folder = cache.write(dataset, text, tmp_path, rows.append)
    opened = data.load(text, tmp_path)
    assert isinstance(opened.train["x"], np.memmap) and folder.name.endswith(".fedwin")
    for split in ("train", "test"):
        for key, value in getattr(dataset, split).items():
            np.testing.assert_array_equal(getattr(opened, split)[key], np.asarray(value))
            assert getattr(opened, split)[key].dtype == value.dtype
    for key in ("name", "num_classes", "task", "mean", "std", "class_names", "domain_names", "verified", "accuracies"):
        assert getattr(opened, key) == getattr(dataset, key)
    for key in ("natural", "test_natural"):
        own, read = getattr(dataset, key), getattr(opened, key)
        assert (own is None) == (read is None)
        if own is not None:
            np.testing.assert_array_equal(own.ids, read.ids)
            np.testing.assert_array_equal(own.offset, read.offset)
            assert (own.domain is None) == (read.domain is None)
    assert sum(rows) == sum(len(v) for side in (dataset.train, dataset.test) for v in side.values())
    clients = None if dataset.natural else 5
    assert (
        data.make_partition(opened, None, clients, 0).order.tobytes()
        == data.make_partition(dataset, None, clients, 0).order.tobytes()
    )


def test_a_cache_is_of_one_choice_and_replaced_whole(tmp_path):
    text = "cifar10_synthetic:n=20,tests=10"
    cache.write(data.load(text), text, tmp_path)
    assert cache.path_in("cifar10_synthetic:n=30,tests=10", tmp_path) != cache.path_in(text, tmp_path)
    cache.write(data.load(text + ",seed=1"), text, tmp_path)
    np.testing.assert_array_equal(data.load(text, tmp_path).train["x"], data.load(text + ",seed=1").train["x"])
    assert [path.name for path in tmp_path.iterdir()] == ["cifar10_synthetic_n_20_tests_10.fedwin"]


def test_two_choices_of_one_folder_have_different_caches(tmp_path):
    one, other = "image_folder:train=a/b.csv", "image_folder:train=a_b.csv"
    dataset = data.load("cifar10_synthetic:n=20,tests=10")
    folder = cache.write(dataset, one, tmp_path)
    assert folder == cache.path_in(other, tmp_path)
    for use in (lambda: data.load(other, tmp_path), lambda: cache.write(dataset, other, tmp_path)):
        with pytest.raises(UserError, match=f"the cache of '{one}', not of '{other}'"):
            use()
    assert len(data.load(one, tmp_path).train["y"]) == 20
    (folder / "meta.json").write_text("{")
    cache.write(dataset, other, tmp_path)  # a damaged one is nobody's
    assert len(data.load(other, tmp_path).train["y"]) == 20


def test_what_dead_processes_left_is_removed(tmp_path):
    done = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True)
    name = lambda host, number: f".x.fedwin.{host}.{number}.partial"
    dead, own = name(cache.HOST, done.stdout.strip()), name(cache.HOST, os.getpid())
    alive, elsewhere = name(cache.HOST, os.getppid()), name("another-machine", done.stdout.strip())
    for folder in (dead, own, alive, elsewhere):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "train.x.npy").write_bytes(b"half")
    cache.write(data.load("digits"), "x", tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"x.fedwin", alive, elsewhere}


def test_a_digest_does_not_depend_on_how_the_rows_are_held(tmp_path, monkeypatch):
    text = "landmarks_synthetic:clients=5,n=40,size=16"
    cache.write(data.load(text), text, tmp_path)
    lazy, mapped = data.load(text).train["x"], data.load(text, tmp_path).train["x"]
    assert isinstance(lazy, data.Images) and isinstance(mapped, np.memmap)
    changed = np.array(mapped)
    changed[20] += 1
    for whole in (1 << 20, 100):  # in full, and by a sample of the rows
        monkeypatch.setattr(example_source, "WHOLE_BYTES", whole)
        assert (
            example_source.feature_digest(lazy)
            == example_source.feature_digest(mapped)
            == example_source.feature_digest(np.asarray(lazy))
            != example_source.feature_digest(changed)
        )
    monkeypatch.setattr(example_source, "ROWS", 10)
    assert (
        example_source.feature_digest(lazy)
        == example_source.feature_digest(mapped)
        == example_source.feature_digest(changed)
    )  # row 20 is not in the sample
    assert example_source.feature_digest(mapped) != example_source.feature_digest(
        mapped[:39]
    ) and example_source.feature_digest(mapped) != example_source.feature_digest(mapped + 1)
    labels = np.arange(6, dtype=np.int32)
    assert (
        example_source.feature_digest(labels)
        != example_source.feature_digest(labels.reshape(3, 2))
        != example_source.feature_digest(labels.reshape(2, 3))
    )


def test_images_are_packed_on_all_cores_and_in_order(tmp_path, monkeypatch):
    threads = set()

    class Seen(data.Images):
        def image(self, item):
            threads.add(threading.get_ident())
            time.sleep(0.002)
            return np.full((4, 4, 3), item, np.uint8)

    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    monkeypatch.setattr(cache, "CHUNK", 7)
    rows = []
    cache.write_feature(tmp_path / "x.npy", Seen(range(50), 4), rows.append)
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy")[:, 0, 0, 0], np.arange(50))
    assert rows == [7] * 7 + [1] and threading.get_ident() not in threads and len(threads) > 1


def test_nothing_half_written_stays(tmp_path):
    dataset = data.load("landmarks_synthetic:clients=5,n=20,size=16")
    calls = []

    def fail(rows):
        calls.append(rows)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.write(dataset, "x", tmp_path, fail)
    assert calls and not list(tmp_path.iterdir())


def test_incomplete_caches_and_caches_of_other_data_are_reported(tmp_path):
    folder = cache.write(data.load("digits"), "digits", tmp_path)
    (folder / "train.y.npy").write_bytes(b"\x93NUMPY")
    with pytest.raises(UserError, match="digits.fedwin/train.y.npy: not a complete cache"):
        cache.read(folder, "digits")
    meta = json.loads((folder / "meta.json").read_text())
    (folder / "meta.json").write_text(json.dumps({**meta, "format": 99}))
    with pytest.raises(UserError, match="format 99"):
        data.load("digits", tmp_path)
    (folder / "meta.json").unlink()
    with pytest.raises(UserError, match="digits.fedwin: not a complete cache"):
        cache.read(folder, "digits")
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        cache.write(data.load("digits"), "digits", tmp_path / "file")


def test_a_large_cache_opens_in_well_under_a_second(tmp_path):
    n, clients = 1_000_000, 342_000
    x = np.zeros((n, 20), np.int32)
    offset = np.linspace(0, n, clients + 1).astype(np.int64)
    ids = np.array([f"{k:08d}" for k in range(clients)])
    natural = data.Partition(np.arange(n, dtype=np.int32), offset, ids=ids)
    cache.write(
        data.Dataset("words", {"x": x, "y": x}, {"x": x[:5], "y": x[:5]}, 5, task="sequence", natural=natural),
        "words",
        tmp_path,
    )
    start = time.perf_counter()
    opened = cache.read(cache.path_in("words", tmp_path))
    assert time.perf_counter() - start < 1.0
    assert opened.natural.num_clients == clients and opened.natural.ids[5] == "00000005"
