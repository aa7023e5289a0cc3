"""A small run on the digits, which modules vary; how it is trained, the lines of its metrics, and its checkpoints."""

import dataclasses
import pathlib

import pytest

import fedwin
from fedwin.runs.checkpoint import seed_checkpoints
from fedwin.runs.metrics_log import read_lines

SMALL = fedwin.Config(
    num_clients=20,
    model="logistic",
    num_rounds=6,
    eval_every=2,
    final_evals=1,
    checkpoint_every=2,
    keep_checkpoints=9,
    rounds_per_dispatch=4,
    strategy="chunked:k=1",
)


def small(**changes) -> fedwin.Config:
    return dataclasses.replace(SMALL, **changes)


def placed(config: fedwin.Config, directory: str | pathlib.Path, **changes) -> fedwin.Config:
    """Returns a configuration with another directory and other changes."""
    return dataclasses.replace(config, out_dir=str(directory), **changes)


def run_in(config: fedwin.Config, directory: str | pathlib.Path, **changes):
    """Trains a configuration with another directory and other changes; returns the summary."""
    return fedwin.run(placed(config, directory, **changes), quiet=True)


def finished_run(config: fedwin.Config, scope: str = "module"):
    """Returns a fixture: (directory, summary) of a run that the tests of a scope share, and do not change."""

    @pytest.fixture(scope=scope)
    def run(tmp_path_factory):
        directory = tmp_path_factory.mktemp("finished") / "run"
        return directory, run_in(config, directory)

    return run


def lines(directory, seed=None):
    """Returns the lines of a run, of one seed if given, without the wall-clock seconds."""
    found = read_lines(directory / "metrics.jsonl")
    of_seed = [line for line in found if seed is None or line["seed"] == seed]
    return [{name: value for name, value in line.items() if name != "seconds"} for line in of_seed]


def leaves(directory, round, seed=0):
    """Returns name -> leaf of a checkpoint."""
    return seed_checkpoints(directory, seed).load(round)[0]
