"""Locations of packed caches: where `prepare` writes them and `load` looks for them."""

import os
import pathlib

import jax
import numpy as np
import pytest

from experiments import prepare
from experiments.cli import jit_cache
from fedwin import data
from fedwin.data import cache
from fedwin.errors import UserError


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


@pytest.fixture
def homeless(monkeypatch, tmp_path):
    """A user without HOME and without a passwd entry, in an empty working directory."""

    def getpwuid(number):
        raise KeyError(number)

    for name in ("FEDWIN_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", getpwuid)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def test_without_a_home_nothing_is_cached_and_one_line_says_so(tmp_path, monkeypatch, homeless):
    folder = npz(tmp_path / "one", 1)
    assert cache.cache_directory() is None
    assert len(data.load("npz", folder).train["y"]) == 4
    with pytest.raises(UserError, match="no home directory is known; set HOME, or FEDWIN_CACHE_DIR") as error:
        prepare.prepare("npz", folder)
    assert "\n" not in str(error.value)
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", None)
    try:
        with pytest.warns(UserWarning, match="compiled programs and data sets are not cached: no home") as seen:
            jit_cache.enable()
        assert len(seen) == 1 and jax.config.jax_compilation_cache_dir is None
    finally:
        jax.config.update("jax_compilation_cache_dir", before)
    assert not list(homeless.iterdir())
    prepare.prepare("npz", folder, tmp_path / "cache")  # a named folder needs no home
    assert isinstance(data.load("npz", tmp_path / "cache").train["x"], np.memmap)
    monkeypatch.setenv("FEDWIN_CACHE_DIR", "~/caches")
    assert cache.cache_directory() is None
    monkeypatch.setenv("HOME", "/home/me")
    assert cache.cache_directory() == pathlib.Path("/home/me/caches")


def test_prepare_leaves_the_originals_alone_and_load_finds_the_cache(tmp_path, cache_dir):
    one, other = npz(tmp_path / "one", 1), npz(tmp_path / "other", 2)
    text = prepare.prepare("npz", one)
    assert str(cache_dir) in text and [path.name for path in one.iterdir()] == ["data.npz"]
    assert isinstance(data.load("npz", one).train["x"], np.memmap)
    assert not isinstance(data.load("npz", other).train["x"], np.memmap)
    prepare.prepare("npz", other)
    for folder, value in ((one, 1), (other, 2)):
        opened = data.load("npz", folder).train["x"]
        assert isinstance(opened, np.memmap) and (opened == value).all()
    assert len(list(cache_dir.iterdir())) == 2


def test_a_cache_is_found_by_another_spelling_of_data_dir(tmp_path, monkeypatch):
    folder = npz(tmp_path / "one", 1)
    prepare.prepare("npz", folder)
    monkeypatch.chdir(tmp_path)
    assert isinstance(data.load("npz", "one").train["x"], np.memmap)
    assert isinstance(data.load("npz", "one/../one/").train["x"], np.memmap)
    prepare.prepare("npz", folder / "data.npz")  # an archive or a file is a data_dir as well
    assert isinstance(data.load("npz", folder / "data.npz").train["x"], np.memmap)


def test_a_cache_next_to_the_originals_opens_and_is_not_made_twice(tmp_path, cache_dir):
    folder = npz(tmp_path / "one", 1)
    cache.write(data.load("npz", folder), "npz", folder)
    assert isinstance(data.load("npz", folder).train["x"], np.memmap)
    assert str(folder / "npz.fedwin") in prepare.prepare("npz", folder) and not list(cache_dir.iterdir())


def test_a_named_cache_directory_holds_the_cache_of_one_data_dir(tmp_path):
    one, other = npz(tmp_path / "one", 1), npz(tmp_path / "other", 2)
    prepare.prepare("npz", one, tmp_path / "cache")
    prepare.prepare("npz", one, tmp_path / "cache")
    with pytest.raises(UserError, match="the cache of the files in .*one, not in .*other; use another --cache_dir"):
        prepare.prepare("npz", other, tmp_path / "cache")
    assert (data.load("npz", tmp_path / "cache").train["x"] == 1).all()
    prepare.prepare("npz", other, tmp_path / "cache", force=True)
    assert (data.load("npz", tmp_path / "cache").train["x"] == 2).all()


def test_a_cache_directory_that_cannot_be_written_is_one_line(tmp_path, monkeypatch):
    folder = npz(tmp_path / "one", 1)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FEDWIN_CACHE_DIR", str(tmp_path / "file" / "below"))
    with pytest.raises(UserError, match="file/below: cannot be written .*--cache_dir or .FEDWIN_CACHE_DIR") as error:
        prepare.prepare("npz", folder)
    assert "\n" not in str(error.value)
    assert len(data.load("npz", folder).train["y"]) == 4


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_of_someone_else_is_left_alone(tmp_path):
    folder = npz(tmp_path / "one", 1)
    (tmp_path / "cache").mkdir(mode=0o500)
    with pytest.raises(UserError, match="cannot be written"):
        prepare.prepare("npz", folder, tmp_path / "cache")
