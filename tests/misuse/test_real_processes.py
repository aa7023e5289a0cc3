"""Rejected commands in real processes: status 2, one line, no files written; most are marked slow."""

import os
import pathlib
import subprocess
import sys

import pytest

from experiments import cli
from tests.misuse import calls, odd_files
from tests.misuse.test_subcommands import BENCH, COMPARE, LISTS, PARTITION, PREPARE
from tests.misuse.test_train_choices import CHOICES
from tests.misuse.test_train_files import CODE, FLAGFILES
from tests.misuse.test_train_numbers import BASE, NUMBERS, SIZES

ROOT = pathlib.Path(cli.__file__).parents[2]
TRAIN = [*NUMBERS, *SIZES, *CHOICES, *FLAGFILES, *CODE]
# Every twelfth command line of `train` and every sixth of the others.
SOME = [(" ".join(BASE) + " " + line, said) for line, said in TRAIN[::12]] + [
    case for cases in (COMPARE, PARTITION, PREPARE, BENCH, LISTS) for case in cases[::6]
]
FEW = [
    ("train fedavg", "'fedavg' is not a flag"),
    ("train --noshuffle=1", "takes no value"),
    ("train --flagfile=latin.flags", "not UTF-8"),
    (" ".join([*BASE, "--observe=wima:window=1000000000 --num_rounds=2000000000"]), "observers | GiB"),
    (" ".join([*BASE, "--import=own/leaves.py"]), "SystemExit"),
    ("compare --methods=", "methods=''"),
    ("partition --out=", "out="),
    ("bench --json=gone/x.json", "json=gone/x.json"),
    ("list nosuch", "'nosuch'"),
]


def process(folder: pathlib.Path, line: str, said: str) -> None:
    """Runs a command line in a separate process, in a folder of invalid files."""
    odd_files.write(folder)
    before = calls.tree_of(folder)
    done = subprocess.run(
        [sys.executable, "-m", "experiments", *calls.arguments_of(line)],
        capture_output=True,
        text=True,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("error: ") and all(part in done.stderr for part in said.split(" | ")), done.stderr
    assert calls.tree_of(folder) == before


@pytest.mark.parametrize("line, said", FEW, ids=lambda value: value[-30:])
def test_a_command_line_is_refused(line, said, refused):
    """The same in this process."""
    refused(said, *calls.arguments_of(line))


@pytest.mark.parametrize(
    "line, said",
    [pytest.param(*case, marks=[pytest.mark.slow] * (number not in (0, 5))) for number, case in enumerate(FEW)],
    ids=lambda value: value[-30:],
)
def test_a_process_is_refused(line, said, tmp_path):
    process(tmp_path, line, said)


@pytest.mark.slow
@pytest.mark.parametrize("line, said", SOME, ids=lambda value: value[-30:])
def test_many_processes_are_refused(line, said, tmp_path):
    process(tmp_path, line, said)
