"""Subcommands that read run directories: no code is imported from them, and nothing is read that is no file."""

import json
import os

import pytest

from tests.misuse import calls
from tests.small_runs import run_in, small


def test_no_code_is_imported_from_a_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_in(small(num_rounds=1), "run")
    path, lines = tmp_path / "run" / "config.json", ("citation run", "figure labels run")
    contents = json.loads(path.read_text())
    contents["config"]["imports"] = ["foreign_code.py"]
    path.write_text(json.dumps(contents))
    (tmp_path / "run" / "SHA256SUMS").unlink()
    (tmp_path / "foreign_code.py").write_text("import pathlib\npathlib.Path('executed').touch()\n")
    for line in lines:
        calls.refused(tmp_path, "run uses the code of foreign_code.py | --import=", *line.split())
    assert not (tmp_path / "executed").exists()
    for line in lines:
        ended = calls.called(*line.split(), "--import=foreign_code.py")
        assert ended.status == 0 and (tmp_path / "executed").exists(), ended.lines


@pytest.mark.parametrize("line", ["citation .", "figure labels .", "curves x.tar.xz"])
def test_a_pipe_in_place_of_a_file_is_refused(line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("config.json", "x.tar.xz", "stored.json"):
        os.mkfifo(name)
    calls.refused(tmp_path, "not the directory of a run" if " ." in line else "not a regular file", *line.split())
