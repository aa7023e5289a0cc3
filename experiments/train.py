"""Trains one federated run, or without any flag the main job: FedAvg, WIMA, SWA and IMA on handwritten digits.

  fedwin train
  fedwin train --flagfile=cifar10_scaffold_wima --data_dir=DIR
  fedwin train --flagfile=cifar10_scaffold_wima --data_dir=DIR --dry_run
  fedwin train --import=my_methods.py --algorithm=my_method:beta=0.5

A choice with parameters is written name:key=value,key=value; `fedwin list algorithms` and the like show what is
available.
"""

import dataclasses
import math
import pathlib
from typing import Any

from absl import flags

import fedwin
from fedwin import jax_config, multi_process
from fedwin.callbacks import scores
from fedwin.errors import escape
from fedwin.runs.config import Config
from fedwin.runs.metrics_log import read_lines

from .cli import config_flags, processes, requirements, subcommand, unused
from .figures import curves
from .figures.sources import Series
from .papers.scales import MAIN_JOB

# The main job: fields of all runs, and of each.
SETTING: dict[str, Any] = MAIN_JOB | {"seeds": ["0", "1", "2"], "eval_every": 5}
RUNS: dict[str, dict[str, Any]] = {
    "fedavg": dict(observe=["wima:window=50", "swa:start=0.75,cycle=10"]),
    "fedavg_ima": dict(wrap=["ima:window=5,start=0.75"]),
}
# (run, read-out) -> label, and the fraction of the rounds after which it differs from FedAvg's own curve.
CURVES = {
    ("fedavg", "model"): ("FedAvg", 0.0),
    ("fedavg", "wima50"): ("FedAvg read through WIMA (W = 50)", 0.0),
    ("fedavg", "swa"): ("FedAvg read through SWA (from 75 %)", 0.75),
    ("fedavg_ima", "model"): ("FedAvg + IMA (P = 5, from 75 %)", 0.75),
}


def draw_curves(root: pathlib.Path) -> pathlib.Path:
    """Draws the curves of the runs below `root`; returns the path of the picture.

    The last 100 rounds are all evaluated, for the table. The picture shows every fifth round: a curve that is denser
    towards its end looks as if training had become unstable.
    """
    lines = {name: read_lines(root / name / "metrics.jsonl") for name in RUNS}
    ends = {name: max(line["round"] for line in evaluations) for name, evaluations in lines.items()}
    series = [
        Series(label, lines[name], readout, math.ceil(fraction * ends[name]))
        for (name, readout), (label, fraction) in CURVES.items()
    ]
    path = root / "accuracy.png"
    drawn = curves.compute(series, every=SETTING["eval_every"], limits=(0, 1))
    curves.draw(drawn, path, "Digits, one class per client, 3 of 100 clients per round")
    return path


def configs(config: Config) -> dict[str, Config]:
    """Returns run of the main job -> its Config, below `config.out_dir` (runs/digits)."""
    root = pathlib.Path(config.out_dir or "runs/digits")
    operational = {f.name: getattr(config, f.name) for f in dataclasses.fields(Config) if f.metadata["operational"]}
    values: dict[str, dict[str, Any]] = {
        name: operational | SETTING | own | {"out_dir": str(root / name)} for name, own in RUNS.items()
    }
    return {name: Config(**fields) for name, fields in values.items()}


def main_job(config: Config) -> None:
    """Trains both runs of the main job, prints the table and draws the curves below `config.out_dir` (runs/digits)."""
    root = pathlib.Path(config.out_dir or "runs/digits")
    print("Handwritten digits, 100 clients with one class each, 3 per round, 3 local epochs; seeds 0, 1, 2.")
    summaries = {name: fedwin.run(run) for name, run in configs(config).items()}
    if not multi_process.is_first():
        return
    path = draw_curves(root)
    print("\n" + scores.summary_table(summaries))
    print(escape(f"curves: {path}"))


def define_flags() -> dict[str, list[str]]:
    """Defines the flags; returns title -> names."""
    groups = config_flags.define() | processes.define()
    requirements.define(groups)
    return groups


def decides_run() -> bool:
    """Whether the command line or a flagfile sets any flag that changes the computation."""
    decisive = {field.name for field in dataclasses.fields(Config) if not field.metadata["operational"]}
    return bool(decisive & config_flags.given_fields())


def main(argv: list[str]) -> None:
    """Trains the run of the flags, or the main job."""
    jax_config.use_every_core()
    config = config_flags.config_from_flags()
    if config.local_steps:
        unused.refuse(["local_epochs"], "beside --local_steps", unused.OMIT)
    if flags.FLAGS.dry_run:
        for run in [config] if decides_run() else configs(config).values():
            requirements.show(run)
        return
    if not decides_run():
        main_job(config)
        return
    print(scores.summary_table({config.algorithm: fedwin.run(config)}))


if __name__ == "__main__":
    subcommand.run(main, define_flags)
