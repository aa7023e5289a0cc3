"""Subcommands that read run directories: no code is imported from them, and nothing is read that is no file."""

import json
import os
import shutil

import pytest

from tests.misuse import calls
from tests.small_runs import run_in, small


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with a finished run."""
    folder = tmp_path_factory.mktemp("altered")
    run_in(small(num_rounds=1), folder / "run")
    return folder


@pytest.fixture
def runs(trained, tmp_path, monkeypatch):
    """A copy of `trained`, the working directory."""
    shutil.copytree(trained, tmp_path / "runs", dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path / "runs")
    return tmp_path / "runs"


@pytest.fixture
def foreign(runs):
    """A run whose config.json names a file of code."""
    path = runs / "run" / "config.json"
    contents = json.loads(path.read_text())
    contents["config"]["imports"] = ["foreign_code.py"]
    path.write_text(json.dumps(contents))
    (runs / "run" / "SHA256SUMS").unlink()
    (runs / "foreign_code.py").write_text("import pathlib\npathlib.Path('executed').touch()\n")
    return runs


@pytest.mark.parametrize("line", ["citation run", "figure labels run"])
def test_no_code_is_imported_from_a_directory(line, foreign):
    calls.refused(foreign, "run uses the code of foreign_code.py | --import=", *line.split())
    ended = calls.called(*line.split(), "--import=foreign_code.py")
    assert (foreign / "executed").exists() and ended.status == 0, ended.lines


@pytest.mark.parametrize("line", ["citation .", "figure labels .", "curves x.tar.xz"])
def test_a_pipe_in_place_of_a_file_is_refused(line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("config.json", "x.tar.xz", "stored.json"):
        os.mkfifo(name)
    calls.refused(tmp_path, "not the directory of a run" if " ." in line else "not a regular file", *line.split())
