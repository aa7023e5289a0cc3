"""Rejected commands in real processes: status 2, one line, no files written."""

import os
import pathlib
import subprocess
import sys

from experiments import cli
from tests.misuse import calls, odd_files
from tests.misuse.test_train import BASE

ROOT = pathlib.Path(cli.__file__).parents[2]


def test_a_process_is_refused(tmp_path):
    odd_files.write(tmp_path)
    before = calls.tree_of(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "experiments", *BASE, "--import=own/leaves.py"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("error: ") and "SystemExit" in done.stderr, done.stderr
    assert calls.tree_of(tmp_path) == before
