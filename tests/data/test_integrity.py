"""Packed caches that were modified: errors name the damage, and the original files repair it."""

import json
import time

import numpy as np
import pytest

from fedwin import data
from fedwin.data import cache, integrity
from fedwin.data.federation import federate
from fedwin.errors import UserError

TEXT = "mnist_writers_synthetic:clients=5,n=40"


def flip(path, at=-1):
    """Inverts one byte of a file; its modification time may stay the same."""
    content = bytearray(path.read_bytes())
    content[at] ^= 255
    path.write_bytes(bytes(content))


def foreign_meta(folder):
    other = cache.write(data.load("digits"), "digits", folder.parent / "other")
    (folder / "meta.json").write_bytes((other / "meta.json").read_bytes())


def edit_meta(folder, **fields):
    """Edits meta.json as a text editor would; its seal stays."""
    meta = json.loads((folder / "meta.json").read_text())
    (folder / "meta.json").write_text(json.dumps(meta | fields, indent=1))


CHANGES = {
    "edited normalization": (
        lambda folder: edit_meta(folder, mean=[0.1], std=[0.9]),
        "meta.json: damaged, it has been changed",
    ),
    "edited number of classes": (lambda folder: edit_meta(folder, num_classes=11), "meta.json: damaged"),
    "an edited checksum": (
        lambda folder: edit_meta(folder, arrays={}),
        "meta.json: damaged",
    ),
    "an edited seal": (lambda folder: edit_meta(folder, seal="0" * 32), "meta.json: damaged"),
    "a byte of x": (lambda folder: flip(folder / "train.x.npy"), "train.x.npy: damaged, its checksum is"),
    "a byte of y": (lambda folder: flip(folder / "test.y.npy"), "test.y.npy: damaged, its checksum is"),
    "a byte of the clients": (lambda folder: flip(folder / "natural.order.npy"), "natural.order.npy: damaged"),
    "an emptied file": (lambda folder: (folder / "train.x.npy").write_bytes(b""), "train.x.npy: .* 0 bytes instead"),
    "a missing file": (lambda folder: (folder / "train.y.npy").unlink(), "train.y.npy: .*missing"),
    "a foreign meta": (foreign_meta, "bytes instead of|is missing"),
    "no meta": (lambda folder: (folder / "meta.json").write_text("[]"), "not a complete cache"),
}


@pytest.mark.parametrize("change, message", CHANGES.values(), ids=CHANGES)
def test_a_changed_cache_is_reported_and_rebuilt(tmp_path, change, message):
    dataset = data.load(TEXT)
    folder = cache.write(dataset, TEXT, tmp_path)
    assert data.load(TEXT, tmp_path).verified
    change(folder)
    with pytest.raises(integrity.DamagedCache, match=message):
        cache.read(folder, TEXT)
    with pytest.warns(UserWarning, match=f"{message}.*The original files are read instead") as seen:
        mended = data.load(TEXT, tmp_path)
    assert len(seen) == 1 and "\n" not in str(seen[0].message)
    np.testing.assert_array_equal(mended.train["x"], dataset.train["x"])
    again = data.load(TEXT, tmp_path)
    assert isinstance(again.train["x"], np.memmap) and again.verified
    np.testing.assert_array_equal(again.train["x"], dataset.train["x"])


def test_an_edited_cache_without_originals_is_one_error_line(tmp_path):
    folder = cache.write(data.load("digits"), "usps", tmp_path)
    edit_meta(folder, mean=[0.1], std=[0.9])
    with pytest.raises(UserError, match="meta.json: damaged.*Remove .*usps.fedwin.*found no usps") as error:
        data.load("usps", tmp_path)
    assert "\n" not in str(error.value)


def test_a_cache_from_before_the_seal_opens(tmp_path):
    dataset = data.load(TEXT)
    folder = cache.write(dataset, TEXT, tmp_path)
    meta = json.loads((folder / "meta.json").read_text())
    del meta["seal"]
    (folder / "meta.json").write_text(json.dumps(meta))
    opened = data.load(TEXT, tmp_path)
    assert opened.verified and opened.mean == dataset.mean and isinstance(opened.train["x"], np.memmap)


def test_without_originals_a_damaged_cache_is_one_error_line(tmp_path):
    folder = cache.write(data.load("digits"), "usps", tmp_path)
    flip(folder / "train.y.npy")
    with pytest.raises(UserError, match="train.y.npy: damaged.*Remove .*usps.fedwin.*found no usps") as error:
        data.load("usps", tmp_path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("key", ["x", "y"])
def test_large_files_are_checked_when_they_are_read_whole(tmp_path, monkeypatch, key):
    folder = cache.write(data.load(TEXT), TEXT, tmp_path)
    monkeypatch.setattr(integrity, "SMALL_BYTES", 0)
    whole = data.load(TEXT, tmp_path)
    federate(whole, whole.natural).store()
    flip(folder / f"train.{key}.npy")
    opened = data.load(TEXT, tmp_path)
    with pytest.raises(UserError, match=f"train.{key}.npy: damaged.*--force"):
        federate(opened, opened.natural).store()
    with pytest.raises(integrity.DamagedCache):
        integrity.check_arrays(opened.train)
    integrity.check_arrays(opened.test)
    integrity.check_arrays(data.load(TEXT).train)  # arrays in memory


def test_opening_reads_no_large_file(tmp_path, monkeypatch):
    x, y = np.zeros((1 << 20, 64), np.uint8), np.zeros(1 << 20, np.int32)
    dataset = data.Dataset("large", {"x": x, "y": y}, {"x": x[:5], "y": y[:5]}, 2)
    folder = cache.write(dataset, "large", tmp_path)
    read = []
    known = integrity.crc32
    monkeypatch.setattr(integrity, "crc32", lambda path: read.append(path.name) or known(path))
    start = time.perf_counter()
    cache.read(folder)
    assert time.perf_counter() - start < 1.0 and "train.x.npy" not in read and "train.y.npy" in read


def test_a_cache_of_the_format_before_checksums_still_opens(tmp_path):
    folder = cache.write(data.load(TEXT), TEXT, tmp_path)
    meta = json.loads((folder / "meta.json").read_text())
    del meta["arrays"], meta["origin"], meta["seal"]
    (folder / "meta.json").write_text(json.dumps({**meta, "format": 2}))
    opened = data.load(TEXT, tmp_path)
    assert isinstance(opened.train["x"], np.memmap) and not opened.verified
    federate(opened, opened.natural).store()
