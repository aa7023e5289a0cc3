"""Disturbances of runs: signals, full disks, altered files; and the outcome that they must not change."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from fedwin.runs.checkpoint import Checkpoints
from tests.programs import ROOT
from tests.small_runs import leaves, lines


def outcome(directory: pathlib.Path) -> tuple[dict[str, np.ndarray], list, dict]:
    """Returns leaves of the last checkpoints, evaluations and summary, without times."""
    state: dict[str, np.ndarray] = {}
    for place in sorted((directory / "checkpoints").iterdir()):
        store = Checkpoints(place)
        arrays = store.load(store.rounds()[-1])[0]
        state |= {f"{place.name} {name}": np.asarray(value) for name, value in arrays.items()}  # large ones are lazy
    summary: dict[str, Any] = json.loads((directory / "summary.json").read_text())
    del summary["traces"]
    for seed in summary["seeds"].values():
        for name in ("wall_seconds", "compile_seconds", "rounds_per_second"):
            del seed[name]
    return state, sorted(lines(directory), key=lambda line: (line["seed"], line["round"])), summary


def assert_same_outcome(mine: pathlib.Path, theirs: pathlib.Path) -> None:
    """Two directories must have the same outcome, to the bit."""
    (a, *rest), (b, *others) = outcome(mine), outcome(theirs)
    assert {name: leaf.tobytes() for name, leaf in a.items()} == {name: leaf.tobytes() for name, leaf in b.items()}
    assert rest == others


def assert_same_state(mine: pathlib.Path, theirs: pathlib.Path, round: int) -> None:
    """Two directories must have the same checkpoint of a round, to the bit.

    Rows of clients that never took part, which are the first ones, are in that of a table on the device alone.
    """
    a, b = leaves(mine, round), leaves(theirs, round)
    assert a.keys() == b.keys() and ("table.ids" in a or not any(name.startswith("table.") for name in a))
    ids = [np.asarray(side.get("table.ids", ())) for side in (a, b)]
    shared = np.intersect1d(*ids)
    assert len(shared) == min(map(len, ids))
    for name in a:
        one, other = (np.asarray(side[name]) for side in (a, b))
        if name.startswith("table.") and name != "table.total":
            one, other = (rows[np.searchsorted(own, shared)] for rows, own in zip((one, other), ids))
        assert one.shape == other.shape and one.tobytes() == other.tobytes(), name


def assert_same_to_rounding(mine: pathlib.Path, theirs: pathlib.Path, seed: int, rtol: float, accuracy: float) -> None:
    """A seed must have the same evaluations in two directories, numbers of its models up to these tolerances."""
    for a, b in zip(lines(mine, seed), lines(theirs, seed), strict=True):
        read_outs = {name for name, value in b.items() if isinstance(value, dict)}
        others = dict.fromkeys(read_outs | {"train_loss", "clients"})  # the last is the checksum of a file
        assert a | others == b | others
        for name in read_outs:
            for metric, value in b[name].items():
                within = pytest.approx(value, rel=rtol, abs=accuracy if "accuracy" in metric else 0, nan_ok=True)
                assert a[name][metric] == within, (b["round"], name, metric)


def interrupted(directory: pathlib.Path, round: int) -> pathlib.Path:
    """Makes of a finished run what a process that was killed after the checkpoints of a round would have left."""
    for name in ("summary.json", "SHA256SUMS"):
        (directory / name).unlink()
    for checkpoint in (directory / "checkpoints").glob("*/[0-9]*"):
        if int(checkpoint.name) > round:
            shutil.rmtree(checkpoint)
    return directory


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return free.getsockname()[1]


def started(
    flags, directory, program="train", devices=2, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, **variables: str
) -> subprocess.Popen:
    """Starts a subcommand on some devices of the CPU, with further environment variables."""
    command = [sys.executable, "-m", f"experiments.{program}", *flags, f"--out_dir={directory}"]
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": str(devices)} | variables
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=stdout, stderr=stderr, text=True)


def flags_of(setting: dict) -> list[str]:
    """Returns the flags of fields of a Config: one per text of a list, numbers with commas."""
    flags = []
    for name, value in setting.items():
        texts = value if isinstance(value, list) else [value]
        if not all(isinstance(text, str) for text in texts):
            texts = [",".join(map(str, texts))]
        flags += [f"--{name}={text}" for text in texts]
    return flags


def wait_until(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + 600
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def wait_for(process: subprocess.Popen, directory: pathlib.Path, seed: int, round: int) -> None:
    """Waits until a process has written the checkpoint of a round, or ended."""
    target = directory / "checkpoints" / f"seed_{seed}" / str(round)
    wait_until(lambda: target.exists() or process.poll() is not None)


def killed_at(process: subprocess.Popen, directory: pathlib.Path, seed: int, round: int) -> bool:
    """Kills a process after the checkpoint of a round; returns whether it was still running."""
    wait_for(process, directory, seed, round)
    running = process.poll() is None
    process.kill()
    process.communicate()
    return running


def hears(process: subprocess.Popen) -> bool:
    """Whether a process has installed its signal handlers."""
    try:
        status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    except OSError:
        return False
    caught = next((line.split()[1] for line in status.splitlines() if line.startswith("SigCgt")), "0")
    return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)


@contextlib.contextmanager
def small_disk(place: pathlib.Path) -> Iterator[Callable[[str], Any]]:
    """Mounts a disk in memory, which the superuser can; yields a function that sets its size, such as '300k'."""
    mount = lambda options: subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", place], capture_output=True)
    place.mkdir()
    if shutil.which("mount") is None or mount("size=64m").returncode:
        pytest.skip("no disk may be mounted here")
    try:
        yield lambda size: mount(f"remount,size={size}").check_returncode()
    finally:
        subprocess.run(["umount", "--lazy", place], capture_output=True)
