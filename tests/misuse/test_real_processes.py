"""Rejected commands in real processes: status 2, one line, no files written."""

import os
import pathlib
import subprocess
import sys

import pytest

from experiments import cli
from tests.misuse import calls, odd_files
from tests.misuse.test_train import BASE

ROOT = pathlib.Path(cli.__file__).parents[2]


@pytest.mark.parametrize(
    "line, said",
    [("train --noshuffle=1", "takes no value"), (" ".join([*BASE, "--import=own/leaves.py"]), "SystemExit")],
    ids=lambda value: value[-30:],
)
def test_a_process_is_refused(line, said, tmp_path):
    odd_files.write(tmp_path)
    before = calls.tree_of(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "experiments", *calls.arguments_of(line)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("error: ") and all(part in done.stderr for part in said.split(" | ")), done.stderr
    assert calls.tree_of(tmp_path) == before
