"""Kill and resume in real processes: the same numbers as without interruption."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import fedwin
from fedwin.runs.checkpoint import Checkpoints
from tests.run_lines import lines

ROOT = pathlib.Path(__file__).parents[2]
SETTING = dict(
    dataset="digits",
    partition="dirichlet:alpha=0",
    num_clients=20,
    model="digits_mlp",
    algorithm="scaffold",
    num_rounds=240,
    clients_per_round=3,
    batch_size=16,
    observe=["wima:window=20"],
    eval_every=10,
    final_evals=20,
    checkpoint_every=40,
    rounds_per_dispatch=20,
    seeds=[0, 1],
)


def started(directory):
    words = {name: ",".join(map(str, v)) if isinstance(v, list) else v for name, v in SETTING.items()}
    flags = [f"--{name}={value}" for name, value in words.items()]
    return subprocess.Popen(
        [sys.executable, "-m", "experiments.train", *flags, f"--out_dir={directory}"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "2"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The run by this process, which has two devices, too."""
    directory = tmp_path_factory.mktemp("whole") / "run"
    fedwin.run(fedwin.Config(**SETTING, out_dir=str(directory)), quiet=True)
    return directory


def test_killed_it_ends_with_the_same_bits(whole, tmp_path):
    directory = tmp_path / "run"
    process = started(directory)
    deadline = time.monotonic() + 200
    target = directory / "checkpoints" / "seed_1" / "80"  # the first seed has ended
    while not target.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert process.poll() is None, "the run ended before it could be killed: give it more rounds"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not (directory / "summary.json").exists()
    process = started(directory)
    said, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    assert "resuming after round" in said
    assert lines(directory) == lines(whole)
    for seed in (0, 1):
        mine, theirs = (Checkpoints(d / "checkpoints" / f"seed_{seed}").latest()[0] for d in (directory, whole))
        assert set(mine) == set(theirs)
        for name in mine:
            np.testing.assert_array_equal(mine[name], theirs[name])
    fingerprints = {json.loads((d / "config.json").read_text())["fingerprint"] for d in (directory, whole)}
    assert len(fingerprints) == 1
