"""Every method sharded over 4 and 8 devices, in separate processes."""

import os
import pathlib
import subprocess
import sys

import pytest

from fedwin.algorithms import ALGORITHMS

ROOT = pathlib.Path(__file__).parents[2]


def run(devices, *choices):
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    # Other platforms than the CPU have as many devices as they have.
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": paths}
    command = [sys.executable, "-m", "tests.testing.sharded_worker", str(devices), *choices]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    return [line.split()[0] for line in done.stdout.splitlines()]


@pytest.mark.slow
def test_four_of_eight_devices():
    # Rows of clients that stay whole, and two phases.
    assert run(8, "4/fedhbm", "4/mime") == ["fedhbm", "mime"]


@pytest.mark.slow
@pytest.mark.parametrize("devices", [4, 8])
def test_all_methods_on_many_devices(devices):
    assert len(run(devices)) == len(ALGORITHMS)
