"""A folder of invalid files, and a guard against runs that start by mistake."""

import pathlib
import shutil

import pytest

from tests.misuse import calls, odd_files


@pytest.fixture(scope="module")
def odd(tmp_path_factory) -> pathlib.Path:
    """A folder of odd files, which a rejected command leaves as it is."""
    folder = tmp_path_factory.mktemp("odd")
    odd_files.write(folder)
    return folder


@pytest.fixture
def refused(odd, monkeypatch):
    """(message, argument, ...) -> the line by which `fedwin SUBCOMMAND ...` is rejected; see calls.refused."""
    calls.no_run_begins(monkeypatch)
    monkeypatch.chdir(odd)
    monkeypatch.setenv("FEDWIN_CACHE_DIR", str(odd / "cache"))
    yield lambda said, *arguments: calls.refused(odd, said, *arguments)
    for name in ("run", "runs"):
        shutil.rmtree(odd / name, ignore_errors=True)
