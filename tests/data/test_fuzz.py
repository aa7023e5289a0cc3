"""Random mutations of small valid files of every format, in a process with a bound on memory and time."""

import os
import subprocess
import sys

import pytest

from tests.data.fuzz import FORMATS


def run_fuzz(seed: int, cases: int, *formats: str) -> None:
    command = [sys.executable, "-m", "tests.data.fuzz", str(seed), str(cases), *formats]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    wrong = done.stdout[done.stdout.find("WRONG") :][:4000] if "WRONG" in done.stdout else ""
    assert done.returncode == 0, (done.returncode, done.stdout[-60:], wrong, done.stderr[-2000:])


def test_damaged_files_of_every_format_end_in_a_data_set_or_one_line():
    run_fuzz(0, 8)


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_many_damaged_files_end_in_a_data_set_or_one_line(name):
    run_fuzz(10_000, 1_500, name)
