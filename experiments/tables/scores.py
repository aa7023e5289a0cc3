"""Numbers and the terminal table from the summaries of runs: accuracy per seed, megabytes, rounds per second."""

import pathlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from fedwin.runs.config import Config
from fedwin.runs.metrics_log import read_lines

from .formats import NOTHING, number, plain_table

MEGABYTE = 1e6


def by_seed(summary: dict[str, Any], readout: str, metric: str) -> dict[int, float | None]:
    """Returns seed -> mean of a metric over the last rounds; None for a seed that diverged.

    Args:
      summary: what `fedwin.run` returned.
      readout: such as model or wima50.
      metric: such as accuracy.
    """
    return {
        seed: None if entry["last"] is None else float(entry["last"][readout][metric])
        for seed, entry in summary["seeds"].items()
    }


def readouts(summary: dict[str, Any]) -> list[str]:
    """Returns the names of a run's read-outs, the plain model first."""
    return list(summary["over_seeds"])


def rounds_per_second(summary: dict[str, Any]) -> float | None:
    """Returns rounds per second of training alone, the mean over seeds; None if none was measured."""
    return mean_of(seed["rounds_per_second"] or None for seed in summary["seeds"].values())


def mean_of(values: Iterable[float | None]) -> float | None:
    """Returns the mean of the values that are not None; None if all are."""
    numbers = [value for value in values if value is not None]
    return float(np.mean(numbers)) if numbers else None


def megabytes(lines: Iterable[dict[str, Any]], seeds: Iterable[int]) -> float | None:
    """Returns the traffic of one seed in MB, over all rounds and clients and in both directions; the mean over seeds.

    Args:
      lines: of metrics.jsonl.
      seeds: which of them count.
    """
    sent = dict.fromkeys(seeds, 0.0)
    for line in lines:
        if line["seed"] in sent:
            sent[line["seed"]] = max(sent[line["seed"]], line["bytes_down"] + line["bytes_up"])
    return mean_of(total / MEGABYTE for total in sent.values())


def megabytes_of(config: Config, summary: dict[str, Any]) -> float | None:
    """Returns the traffic in MB of the seeds of a run that did not diverge.

    Args:
      config: of the run, with its out_dir.
      summary: what `fedwin.run` returned.
    """
    converged = [seed for seed, entry in summary["seeds"].items() if entry["last"] is not None]
    return megabytes(read_lines(pathlib.Path(config.out_dir) / "metrics.jsonl"), converged)


def last_rounds(summary: dict[str, Any]) -> str:
    """Returns the rounds that the numbers of a summary are means over: 'the last 10 of 50 rounds'."""
    total = summary["num_rounds"]
    last = min(max(summary["last_rounds"], 1), total)
    return f"the last {last} of {total} rounds" if last < total else f"all {total} round{'s' if total > 1 else ''}"


def summary_table(summaries: dict[str, dict[str, Any]]) -> str:
    """Returns a row per run and read-out: accuracy (%) and loss over the last rounds, mean +- std over seeds.

    Args:
      summaries: name of the run -> what `fedwin.run` returned.
    """
    several = any(len(summary["seeds"]) > 1 for summary in summaries.values())
    rows = [("run", "read-out", "accuracy (%)", "loss", *(["each seed (%)"] if several else []), "rounds/s")]
    for run, summary in summaries.items():
        for position, (name, metrics) in enumerate(summary["over_seeds"].items()):
            each = " ".join(_accuracy(seed, name) for seed in summary["seeds"].values())
            cells = (_cell(metrics["accuracy"], True), _cell(metrics["loss"], False), *([each] if several else []))
            # All read-outs of a run come from the same rounds.
            speed = "" if position else number(rounds_per_second(summary), 1)
            rows.append(("" if position else run, name, *cells, speed))
    return "\n".join([plain_table(rows), mean_note(next(iter(summaries.values()))), *divergence_notes(summaries)])


def _cell(stats: dict[str, Any], percent: bool) -> str:
    factor, digits = (100, 2) if percent else (1, 4)
    if stats["mean"] is None:
        return "diverged"
    text = f"{stats['mean'] * factor:.{digits}f}"
    text = text if stats["std"] is None else f"{text} +- {stats['std'] * factor:.{digits}f}"
    seeds, of_seeds = stats["seeds"], stats["of_seeds"]
    return text if seeds == of_seeds else f"{text} ({seeds} of {of_seeds} seeds)"


def _accuracy(seed: dict[str, Any], readout: str) -> str:
    return f"{100 * seed['last'][readout]['accuracy']:.2f}" if seed["last"] else NOTHING


def mean_note(summary: dict[str, Any]) -> str:
    """Returns the line below the table: the rounds and seeds that its numbers are means over."""
    seeds = summary["seeds"]
    return f"mean over {last_rounds(summary)}; seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"


def divergence_notes(summaries: dict[str, dict[str, Any]]) -> list[str]:
    """Returns a line per seed that diverged and is left out of all means."""
    return [
        f"{run} seed {seed} diverged in round {entry['diverged_at']} and counts in no mean"
        for run, summary in summaries.items()
        for seed, entry in summary["seeds"].items()
        if entry["diverged_at"] is not None
    ]
