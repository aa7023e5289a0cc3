"""Subcommands that read run directories: altered files are rejected, and no code is imported from them."""

import json
import os
import pathlib
import shlex
import shutil
import sys

import pytest

from tests.misuse import calls

FLAGS = f"{calls.SMALL} --num_rounds=3 --grid=client_lr=0.1"
RUN = "sweep/client_lr_0.1"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with the finished run of a sweep."""
    folder = tmp_path_factory.mktemp("altered")
    assert calls.called("sweep", *shlex.split(FLAGS), f"--out_dir={folder}/sweep").status == 0
    return folder


@pytest.fixture
def runs(trained, tmp_path, monkeypatch):
    """A copy of `trained`, the working directory."""
    shutil.copytree(trained, tmp_path / "runs", dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path / "runs")
    return tmp_path / "runs"


def alter(path: pathlib.Path, old: str, new: str) -> None:
    """Replaces the first occurrence of a text in a file."""
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


@pytest.mark.parametrize("line", [f"curves {RUN}", f"sweep {FLAGS} --out_dir=sweep"], ids=("curves", "sweep"))
def test_altered_evaluations_are_refused(line, runs):
    path = runs / RUN / "metrics.jsonl"
    accuracy = json.loads(path.read_text().splitlines()[-1])["model"]["accuracy"]
    alter(path, f'"accuracy": {accuracy}', '"accuracy": 0.999')
    calls.refused(runs, "metrics.jsonl has been altered", *shlex.split(line))


def test_an_altered_summary_names_no_winner(runs):
    accuracy = json.loads((runs / RUN / "summary.json").read_text())["seeds"]["0"]["last"]["model"]
    alter(runs / RUN / "summary.json", str(accuracy["accuracy"]), "0.999")
    line = f"sweep {FLAGS} --out_dir=sweep"
    calls.refused(runs, "summary.json has been altered | restore it", *shlex.split(line))


def test_citation_reads_intact_configurations_only(runs):
    alter(runs / RUN / "config.json", '"algorithm": "fedavg"', '"algorithm": "scaffold"')
    calls.refused(runs, "config.json has been altered", "citation", RUN)


@pytest.fixture
def foreign(runs, monkeypatch):
    """A run whose config.json names a file of code."""
    path = runs / RUN / "config.json"
    contents = json.loads(path.read_text())
    contents["config"]["imports"] = ["foreign_code.py"]
    path.write_text(json.dumps(contents))
    (runs / RUN / "SHA256SUMS").unlink()
    (runs / "foreign_code.py").write_text("import pathlib\npathlib.Path('executed').touch()\n")
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield runs
    sys.modules.pop("foreign_code", None)


@pytest.mark.parametrize("line", [f"citation {RUN}", f"figure labels {RUN}"])
def test_no_code_is_imported_from_a_directory(line, foreign):
    calls.refused(foreign, f"{RUN} uses the code of foreign_code.py | --import=", *line.split())
    ended = calls.called(*line.split(), "--import=foreign_code.py")
    assert (foreign / "executed").exists() and ended.status == 0, ended.lines


@pytest.mark.parametrize("line", ["citation .", "figure labels .", "curves x.tar.xz"])
def test_a_pipe_in_place_of_a_file_is_refused(line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("config.json", "x.tar.xz", "stored.json"):
        os.mkfifo(name)
    calls.refused(tmp_path, "not the directory of a run" if " ." in line else "not a regular file", *line.split())
