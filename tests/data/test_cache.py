"""Packed caches: content, location, damage, and `fedwin prepare`."""

import json
import os
import pathlib

import jax
import numpy as np
import pytest

from experiments import prepare
from experiments.cli import jit_cache
from fedwin import data, plugins
from fedwin.data import cache, example_source, integrity
from fedwin.data.federation import federate
from tests.data.files import flip, refused, write_cache

TEXT = "mnist_writers_synthetic:clients=5,n=40"
CHOICES = ["digits", "femnist_synthetic:clients=10,n=100", "landmarks_synthetic:clients=5,n=20,size=16"]


@pytest.mark.parametrize("text", CHOICES)
def test_a_cache_holds_the_whole_data_set(tmp_path, text):
    dataset = data.load(text)
    rows = []
    folder = write_cache(dataset, text, tmp_path, rows.append)
    opened = data.load(text, tmp_path)
    assert isinstance(opened.train["x"], np.memmap) and folder.name.endswith(".fedwin")
    for split in ("train", "test"):
        for key, value in getattr(dataset, split).items():
            np.testing.assert_array_equal(getattr(opened, split)[key], np.asarray(value))
            assert getattr(opened, split)[key].dtype == value.dtype
    for key in cache.FIELDS:
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
    orders = [data.make_partition(each, None, clients, 0).order.tobytes() for each in (opened, dataset)]
    assert orders[0] == orders[1] and data.checksum(opened) == data.checksum(dataset)


def test_a_cache_is_of_one_choice_and_replaced_whole(tmp_path):
    text = "cifar10_synthetic:n=20,tests=10"
    write_cache(data.load(text), text, tmp_path)
    write_cache(data.load(text + ",seed=1"), text, tmp_path)
    np.testing.assert_array_equal(data.load(text, tmp_path).train["x"], data.load(text + ",seed=1").train["x"])
    assert [path.name for path in tmp_path.iterdir()] == ["cifar10_synthetic_n_20_tests_10.fedwin"]


def test_two_choices_of_one_path_are_not_confused(tmp_path):
    one, other = "image_folder:train=a/b.csv", "image_folder:train=a_b.csv"
    dataset = data.load("cifar10_synthetic:n=20,tests=10")
    folder = write_cache(dataset, one, tmp_path)
    assert folder == cache.path_in(other, tmp_path)
    for use in (lambda: data.load(other, tmp_path), lambda: write_cache(dataset, other, tmp_path)):
        refused(f"the cache of '{one}', not of '{other}'", use)
    assert len(data.load(one, tmp_path).train["y"]) == 20


def test_nothing_half_written_stays(tmp_path):
    left = tmp_path / ".x.fedwin.0123.partial"
    left.mkdir()
    os.utime(left, (0, 0))
    calls = []

    def fail(rows):
        calls.append(rows)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_cache(data.load("landmarks_synthetic:clients=5,n=20,size=16"), "x", tmp_path, fail)
    assert calls and not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path, monkeypatch):
    folder = npz(tmp_path / "one", 1)
    (tmp_path / "file").write_text("")
    refused("cannot be written", write_cache, data.load("digits"), "digits", tmp_path / "file")
    monkeypatch.setenv("FEDWIN_CACHE_DIR", str(tmp_path / "file" / "below"))
    refused("file/below: cannot be written .*--cache_dir or .FEDWIN_CACHE_DIR", prepare.prepare, "npz", folder)
    assert len(data.load("npz", folder).train["y"]) == 4


def test_a_digest_does_not_depend_on_how_the_rows_are_held(tmp_path):
    text = "landmarks_synthetic:clients=5,n=40,size=16"
    write_cache(data.load(text), text, tmp_path)
    lazy, mapped = data.load(text).train["x"], data.load(text, tmp_path).train["x"]
    changed = np.array(mapped)
    changed[20] += 1
    digest = example_source.feature_digest
    for whole in (1 << 20, 100):  # in full, and by a sample of the rows
        assert digest(lazy, whole) == digest(mapped, whole) == digest(np.asarray(lazy), whole) != digest(changed, whole)
    assert digest(lazy, 100, 10) == digest(mapped, 100, 10) == digest(changed, 100, 10)  # row 20 is not in the sample
    assert len({digest(value, 100, 10) for value in (mapped, mapped[:39], mapped + 1)}) == 3
    labels = np.arange(6, dtype=np.int32)
    assert len({digest(labels.reshape(shape)) for shape in ((6,), (3, 2), (2, 3))}) == 3


def edit(folder, **fields):
    meta = json.loads((folder / "meta.json").read_text())
    (folder / "meta.json").write_text(json.dumps(meta | fields))


CHANGES = {
    "a byte of x": (lambda folder: flip(folder / "train.x.npy"), "train.x.npy: damaged, its checksum is"),
    "an emptied file": (lambda folder: (folder / "train.x.npy").write_bytes(b""), "train.x.npy: .* 0 bytes instead"),
    "a missing file": (lambda folder: (folder / "train.y.npy").unlink(), "train.y.npy: .*No such file"),
    "another format": (lambda folder: edit(folder, format=99), "the cache has format 99, not 1"),
}


@pytest.mark.parametrize("change, message", CHANGES.values(), ids=CHANGES)
def test_a_damaged_cache_is_reported_and_rebuilt(tmp_path, change, message):
    dataset = data.load(TEXT)
    folder = write_cache(dataset, TEXT, tmp_path)
    change(folder)
    refused(message, cache.read, folder, TEXT)
    with pytest.warns(UserWarning, match=f"{message}.*The original files are read instead") as seen:
        mended = data.load(TEXT, tmp_path)
    assert len(seen) == 1 and "\n" not in str(seen[0].message)
    again = data.load(TEXT, tmp_path)
    assert isinstance(again.train["x"], np.memmap)
    for loaded in (mended, again):
        np.testing.assert_array_equal(loaded.train["x"], dataset.train["x"])


def test_without_originals_a_damaged_cache_is_one_error_line(tmp_path):
    folder = write_cache(data.load("digits"), "usps", tmp_path)
    flip(folder / "train.y.npy")
    refused("train.y.npy: damaged.*Remove .*usps.fedwin.*found no usps", data.load, "usps", tmp_path)


@pytest.mark.parametrize("key", ["x", "y"])
def test_large_files_are_checked_when_they_are_read_whole(tmp_path, monkeypatch, key):
    folder = write_cache(data.load(TEXT), TEXT, tmp_path)
    monkeypatch.setattr(integrity, "SMALL_BYTES", 0)
    with monkeypatch.context() as patch:
        patch.setattr(integrity, "crc32", None)  # opening reads no large file
        whole = data.load(TEXT, tmp_path)
    federate(whole, whole.natural).store()
    flip(folder / f"train.{key}.npy")
    opened = data.load(TEXT, tmp_path)
    refused(f"train.{key}.npy: damaged.*--force", lambda: federate(opened, opened.natural).store())
    refused(f"train.{key}.npy: damaged", integrity.check_arrays, opened.train, error=integrity.DamagedCache)
    integrity.check_arrays(opened.test)
    integrity.check_arrays(data.load(TEXT).train)  # arrays in memory


def npz(folder, value):
    """Writes a data set of one pixel value."""
    folder.mkdir(parents=True)
    x, y = np.full((4, 2, 2, 1), value, np.uint8), np.arange(4)
    np.savez(folder / "data.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    return folder


def test_the_cache_directory_follows_the_environment(monkeypatch):
    monkeypatch.setenv("FEDWIN_CACHE_DIR", "/own")
    assert cache.cache_directory() == pathlib.Path("/own")
    monkeypatch.delenv("FEDWIN_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache.cache_directory() == pathlib.Path("/xdg/fedwin")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/me")
    assert cache.cache_directory() == pathlib.Path("/home/me/.cache/fedwin")


def test_without_a_home_nothing_is_cached(tmp_path, monkeypatch):
    """Without HOME and a passwd entry."""
    for name in ("FEDWIN_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)
    folder, here = npz(tmp_path / "one", 1), tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    assert cache.cache_directory() is None
    assert len(data.load("npz", folder).train["y"]) == 4
    refused("no home directory is known; set HOME, or FEDWIN_CACHE_DIR", prepare.prepare, "npz", folder)
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", None)
    try:
        with pytest.warns(UserWarning, match="compiled programs and data sets are not cached: no home") as seen:
            jit_cache.enable()
        assert len(seen) == 1 and jax.config.jax_compilation_cache_dir is None
    finally:
        jax.config.update("jax_compilation_cache_dir", before)
    assert not list(here.iterdir())
    prepare.prepare("npz", folder, tmp_path / "cache")  # a named folder needs no home
    assert isinstance(data.load("npz", tmp_path / "cache").train["x"], np.memmap)


def test_prepare_leaves_the_originals_alone_and_load_finds_the_cache(tmp_path, cache_dir, monkeypatch):
    one, other = npz(tmp_path / "one", 1), npz(tmp_path / "other", 2)
    text = prepare.prepare("npz", one)
    assert "prepared in" in text and "prepared before" in prepare.prepare("npz", one)
    assert str(cache_dir) in text and [path.name for path in one.iterdir()] == ["data.npz"]
    assert not isinstance(data.load("npz", other).train["x"], np.memmap)
    prepare.prepare("npz", other)
    for folder, value in ((one, 1), (other, 2)):
        opened = data.load("npz", folder).train["x"]
        assert isinstance(opened, np.memmap) and (opened == value).all()
    assert len(list(cache_dir.iterdir())) == 2
    monkeypatch.chdir(tmp_path)
    assert isinstance(data.load("npz", "one/../one/").train["x"], np.memmap)  # another spelling
    prepare.prepare("npz", one / "data.npz")  # an archive or a file is a data_dir as well
    assert isinstance(data.load("npz", one / "data.npz").train["x"], np.memmap)


def test_a_changed_plug_in_does_not_find_what_it_prepared_before(tmp_path, cache_dir):
    code = "from fedwin import data\ndata.DATASETS.register('prepared', lambda data_dir: data.load('digits'))\n"
    (file := tmp_path / "prepared_before.py").write_text(code)
    plugins.load([str(file)])
    prepare.prepare("prepared", tmp_path)
    assert isinstance(data.load("prepared", tmp_path).train["x"], np.memmap)
    file.write_text(code + "# changed")
    assert not isinstance(data.load("prepared", tmp_path).train["x"], np.memmap)


@pytest.mark.parametrize("name, mode", [("", 0o777), ("meta.json", 0o666)])
def test_prepared_data_that_others_may_change_are_refused(tmp_path, cache_dir, name, mode):
    folder = npz(tmp_path / "one", 1)
    before = os.umask(0)
    try:
        prepare.prepare("npz", folder)
    finally:
        os.umask(before)
    assert isinstance(data.load("npz", folder).train["x"], np.memmap)
    (next(cache_dir.glob(f"*/{name}")) if name else cache_dir).chmod(mode)
    message = "prepared data is refused: others may write to .*; `chmod go-w .*FEDWIN_CACHE_DIR"
    for use in (data.load, prepare.prepare):
        refused(message, use, "npz", folder)
    if mode == 0o777:  # neither are new ones written
        refused(message, prepare.prepare, "npz", npz(tmp_path / "two", 1))


def test_a_named_cache_directory_holds_the_cache_of_one_data_dir(tmp_path):
    one, other = npz(tmp_path / "one", 1), npz(tmp_path / "other", 2)
    prepare.prepare("npz", one, tmp_path / "cache")
    prepare.prepare("npz", one, tmp_path / "cache")
    words = "the cache of the files in .*one, not in .*other; use another --cache_dir"
    refused(words, prepare.prepare, "npz", other, tmp_path / "cache")
    assert (data.load("npz", tmp_path / "cache").train["x"] == 1).all()
    prepare.prepare("npz", other, tmp_path / "cache", force=True)
    assert (data.load("npz", tmp_path / "cache").train["x"] == 2).all()
