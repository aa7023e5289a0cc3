"""Every method sharded over 4 and 8 devices, in separate processes."""

import sys

import pytest

from fedwin.algorithms import ALGORITHMS
from tests.programs import output_of


def run(devices, *choices):
    command = [sys.executable, "-m", "tests.testing.sharded_worker", str(devices), *choices]
    # Other platforms than the CPU have as many devices as they have.
    said = output_of(*command, JAX_PLATFORMS="cpu", JAX_NUM_CPU_DEVICES=str(devices))
    return [line.split()[0] for line in said.splitlines()]


@pytest.mark.slow
def test_four_of_eight_devices():
    # Rows of clients that stay whole, and two phases.
    assert run(8, "4/fedhbm", "4/mime") == ["fedhbm", "mime"]


@pytest.mark.slow
@pytest.mark.parametrize("devices", [4, 8])
def test_all_methods_on_many_devices(devices):
    assert len(run(devices)) == len(ALGORITHMS)
