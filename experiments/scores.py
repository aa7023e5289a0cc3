"""What the summaries and evaluations of runs say, as tables need it."""

import pathlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from fedwin.runs.config import Config
from fedwin.runs.metrics_log import read_lines

MEGABYTE = 1e6


def by_seed(summary: dict[str, Any], readout: str, metric: str) -> dict[int, float | None]:
    """Returns seed -> mean of a metric over the last rounds; None for a seed that diverged.

    Args:
      summary: what `fedwin.run` returned.
      readout: such as model or wima50.
      metric: such as accuracy.
    """
    return {
        seed: None if found["last"] is None else float(found["last"][readout][metric])
        for seed, found in summary["seeds"].items()
    }


def readouts(summary: dict[str, Any]) -> list[str]:
    """Returns the names of a run's read-outs, the plain model first."""
    return list(summary["over_seeds"])


def pace(summary: dict[str, Any]) -> float | None:
    """Returns rounds per second of training alone, the mean over seeds; None where nothing was measured."""
    rates = [seed["rounds_per_second"] for seed in summary["seeds"].values() if seed["rounds_per_second"]]
    return float(np.mean(rates)) if rates else None


def mean_of(values: Iterable[float | None]) -> float | None:
    """Returns the mean of the numbers that there are, or None without any."""
    kept = [value for value in values if value is not None]
    return float(np.mean(kept)) if kept else None


def megabytes(lines: Iterable[dict[str, Any]], seeds: Iterable[int]) -> float | None:
    """Returns what one seed sends in all rounds, down and up and to all clients, in MB; the mean over seeds.

    Args:
      lines: those of metrics.jsonl.
      seeds: which of them count.
    """
    sent = dict.fromkeys(seeds, 0.0)
    for line in lines:
        if line["seed"] in sent:
            sent[line["seed"]] = max(sent[line["seed"]], line["bytes_down"] + line["bytes_up"])
    return mean_of(total / MEGABYTE for total in sent.values())


def megabytes_of(config: Config, summary: dict[str, Any]) -> float | None:
    """Returns the same of the seeds of a run that did not diverge.

    Args:
      config: what was run, with its out_dir.
      summary: what came out.
    """
    kept = [seed for seed, found in summary["seeds"].items() if found["last"] is not None]
    return megabytes(read_lines(pathlib.Path(config.out_dir) / "metrics.jsonl"), kept)


def last_rounds(summary: dict[str, Any]) -> str:
    """Returns what its numbers are means of."""
    total = summary["num_rounds"]
    last = min(max(summary["last_rounds"], 1), total)
    return f"the last {last} of {total} rounds" if last < total else f"all {total} round{'s' if total > 1 else ''}"
