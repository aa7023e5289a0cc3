"""Peak memory of runs whose client table is the largest array: one copy of the table."""

import os
import re
import subprocess
import sys

import pytest

from tests.runs.disturbance import interrupted, started

# 100 clients with 3.9 MB each.
FLAGS = (
    "--dataset=digits --num_clients=100 --model=digits_mlp:hidden=13000 --num_rounds=4 --clients_per_round=2 "
    "--local_epochs=1 --rounds_per_dispatch=2 --checkpoint_every=2 --eval_every=4"
).split()
# Parts of the estimate: the table, the rows of a cohort, blocks on their way to and from the disk.
SHARE = 1.3


def peak(directory, devices: int, *more: str) -> tuple[int, str]:
    """Returns the peak resident set of a run in a separate process, in bytes, and its output."""
    log = directory.with_suffix(".txt")
    with open(log, "w") as file:
        process = started([*FLAGS, *more], directory, stdout=file, stderr=subprocess.STDOUT, devices=devices)
        _, status, usage = os.wait4(process.pid, 0)
    assert status == 0, log.read_text()
    return usage.ru_maxrss * 1024, log.read_text()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the unit of peak memory is a kilobyte on Linux")
@pytest.mark.parametrize("devices", [1, 2])
def test_a_client_table_is_in_memory_once(devices, tmp_path):
    without, _ = peak(tmp_path / "fedavg", devices, "--algorithm=fedavg")
    begun, said = peak(tmp_path / "fedhbm", devices, "--algorithm=fedhbm")
    announced = float(re.search(r"client table ([0-9.]+) MB", said)[1]) * 1e6
    assert announced > 390e6
    interrupted(tmp_path / "fedhbm", 2)
    resumed, said = peak(tmp_path / "fedhbm", devices, "--algorithm=fedhbm")
    assert "resuming after round 2" in said
    print(f"{devices} devices: {[(x - without) / announced for x in (begun, resumed)]} of {announced / 1e6:.0f} MB")
    assert max(begun, resumed) - without <= SHARE * announced
