"""Kill and resume in real processes: the same numbers as without interruption."""

import subprocess

import pytest

import fedwin
from tests.runs import test_processes
from tests.runs.disturbance import assert_same_outcome, flags_of, killed_at, started

SETTING = test_processes.SETTING | {"num_rounds": 240, "checkpoint_every": 40, "seeds": [0, 1]}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The run by this process, which has two devices, too."""
    directory = tmp_path_factory.mktemp("whole") / "run"
    fedwin.run(fedwin.Config(**SETTING, out_dir=str(directory)), quiet=True)
    return directory


def test_killed_it_ends_with_the_same_bits(whole, tmp_path):
    directory = tmp_path / "run"
    process = started(flags_of(SETTING), directory)
    # The first seed has ended.
    assert killed_at(process, directory, 1, 80), "the run ended before it could be killed: give it more rounds"
    assert not (directory / "summary.json").exists()
    process = started(flags_of(SETTING), directory, subprocess.PIPE)
    said, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    assert "resuming after round" in said
    assert_same_outcome(directory, whole)
