"""Runs in separate processes that are killed at a given moment."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np

ROOT = pathlib.Path(__file__).parents[2]


def killed_after(config, rounds) -> int:
    """Starts a run for each of some rounds and kills it shortly after its checkpoint; returns how often it did."""
    code = f"import fedwin\nfrom fedwin.runs.config import Config\nfedwin.run({config!r}, quiet=True)"
    environment = os.environ | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    rng, kills = np.random.default_rng(0), 0
    for wanted in rounds:
        process = subprocess.Popen([sys.executable, "-c", code], env=environment)
        target = pathlib.Path(config.out_dir) / "checkpoints" / "seed_0" / str(wanted)
        while not target.exists() and process.poll() is None:
            time.sleep(0.005)
        time.sleep(rng.uniform(0, 0.3))
        kills += process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.wait()
    return kills
