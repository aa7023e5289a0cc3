"""The main job: does a window average help under extreme heterogeneity? Digits, one class per client, a few minutes."""

import dataclasses
import importlib
import math
import pathlib
from typing import Any

import fedwin
from fedwin import multi_process
from fedwin.runs.config import Config
from fedwin.runs.metrics_log import read_lines

from . import report
from .figures.sources import Series

SETTING: dict[str, Any] = dict(
    dataset="digits",
    partition="dirichlet:alpha=0",
    num_clients=100,
    clients_per_round=3,
    model="cnn",
    num_rounds=400,
    local_epochs=3,
    batch_size=10,
    client_lr=0.05,
    seeds=["0", "1", "2"],
    eval_every=5,
    final_evals=100,
)
RUNS: dict[str, dict[str, Any]] = {
    "fedavg": dict(observe=["wima:window=50", "swa:start=0.75,cycle=10"]),
    "fedavg_ima": dict(wrap=["ima:window=5,start=0.75"]),
}
# (run, read-out): label, and the share of the rounds from which it differs from FedAvg's own curve.
CURVES = {
    ("fedavg", "model"): ("FedAvg", 0.0),
    ("fedavg", "wima50"): ("FedAvg read through WIMA (W = 50)", 0.0),
    ("fedavg", "swa"): ("FedAvg read through SWA (from 75 %)", 0.75),
    ("fedavg_ima", "model"): ("FedAvg + IMA (P = 5, from 75 %)", 0.75),
}


def picture(root: pathlib.Path) -> pathlib.Path:
    """Draws the curves of the runs below `root`; returns where they are.

    The last 100 rounds are all evaluated, for the table. The picture shows every fifth round from first to last: curves
    that are denser towards the end look as if training had become unstable.
    """
    lines = {name: read_lines(root / name / "metrics.jsonl") for name in RUNS}
    ends = {name: max(line["round"] for line in found) for name, found in lines.items()}
    drawn = [
        Series(label, lines[name], readout, math.ceil(share * ends[name]))
        for (name, readout), (label, share) in CURVES.items()
    ]
    path = root / "accuracy.png"
    # matplotlib takes half a second to import, and other runs draw nothing.
    curves = importlib.import_module(".figures.curves", __package__)
    seeds = "3 seeds, band: 1 std; every fifth round"
    found = curves.compute(drawn, every=SETTING["eval_every"], limits=(0, 1))
    curves.draw(found, path, f"Digits, one class per client, 3 of 100 clients per round ({seeds})")
    return path


def configs(config: Config) -> dict[str, Config]:
    """Returns run -> its Config, below `config.out_dir` (runs/digits)."""
    root = pathlib.Path(config.out_dir or "runs/digits")
    kept = {f.name: getattr(config, f.name) for f in dataclasses.fields(Config) if f.metadata["operational"]}
    found = {}
    for name, more in RUNS.items():
        values: dict[str, Any] = kept | SETTING | more | {"out_dir": str(root / name)}
        found[name] = Config(**values)
    return found


def main(config: Config) -> None:
    """Runs both trials, prints the table and draws the curves below `config.out_dir` (runs/digits)."""
    root = pathlib.Path(config.out_dir or "runs/digits")
    print("Handwritten digits, 100 clients with one class each, 3 per round, 3 local epochs; seeds 0, 1, 2.")
    summaries = {name: fedwin.run(one) for name, one in configs(config).items()}
    if not multi_process.is_first():
        return
    path = picture(root)
    print("\n" + report.table(summaries))
    print(f"curves: {path}")
