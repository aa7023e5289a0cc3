"""Accuracy, loss and the like over rounds: several runs and read-outs, mean and band over seeds."""

import math
import pathlib
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedwin.errors import UserError

from . import style
from .sources import Line, Series

KIND = "curves"
# Curves of at most so many points carry a marker at every point, longer ones at about so many places.
MARKED = 12


def curve(
    lines: list[Line], readout: str = "model", metric: str = "accuracy", every: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """Returns (rounds [R], values [S, R]) of one read-out for the rounds that every seed has; S >= 1.

    Seeds that diverged, or ended before the others, are left out unless all of them did.

    Args:
      lines: those of metrics.jsonl.
      readout: its name.
      metric: which of its numbers.
      every: only rounds that are multiples of this, so that the curve is equally dense everywhere.

    Raises:
      UserError: there is no evaluation of it, or it has no such number.
    """
    by_seed: dict[int, dict[int, float]] = {}
    for line in lines:
        if readout in line and line["round"] % every == 0:
            if metric not in line[readout]:
                raise UserError(f"metric '{metric}': {readout} has {', '.join(line[readout])}.")
            by_seed.setdefault(line["seed"], {})[line["round"]] = float(line[readout][metric])
    if not by_seed:
        raise UserError(f"there is no evaluation of {readout} to draw.")
    end = max(max(found) for found in by_seed.values())
    losses = ((line["seed"], line[readout].get("loss", 0)) for line in lines if readout in line)
    diverged = {seed for seed, loss in losses if not math.isfinite(float(loss))}
    whole = [found for seed, found in by_seed.items() if max(found) == end and seed not in diverged]
    kept = whole or list(by_seed.values())
    rounds = sorted(set.intersection(*(set(found) for found in kept)))
    return np.array(rounds), np.array([[found[r] for r in rounds] for found in kept])


def compute(
    series: Sequence[Series],
    metric: str = "accuracy",
    *,
    every: int = 1,
    target: float | None = None,
    start: int | None = None,
    limits: tuple[float | None, float | None] | None = None,
    log: bool = False,
) -> dict[str, Any]:
    """Returns the curves, and what is drawn beside them.

    Args:
      series: which, as `sources.series` reads them.
      metric: 'accuracy', 'loss' or another number of the evaluations.
      every: only rounds that are multiples of this.
      target: a value with a horizontal line.
      start: a round with a vertical line, at which an average begins.
      limits: lowest and highest value shown; None where the data decide.
      log: whether the values have a logarithmic axis.

    Raises:
      UserError: a curve has no such evaluations.
    """
    found = []
    for one in series:
        rounds, values = curve(one.lines, one.readout, metric, every)
        shown = rounds >= one.since
        if not shown.any():
            raise UserError(f"'{one.label}' has no evaluation from round {one.since} on.")
        found.append({"label": one.label, "rounds": rounds[shown].tolist(), "values": style.plain(values[:, shown])})
    if not found:
        raise UserError("there is no curve to draw; name a run.")
    options = {"target": target, "start": start, "limits": list(limits) if limits else None, "log": log}
    return {"kind": KIND, "metric": metric, "curves": found, **options}


def draw(found: dict[str, Any], path: str | pathlib.Path | None, title: str):
    """Draws lines: the mean over seeds; a band of one standard deviation; thin lines for the seeds.

    Args:
      found: what `compute` returned.
      path: where the picture goes; None: nowhere.
      title: the line above it.

    Returns:
      The matplotlib figure.
    """
    metric, count = found["metric"], len(found["curves"])
    with style.panels(path, title, width=1.2 * style.WIDTH, height=1.1 * style.HEIGHT) as (figure, grid):
        axis = grid[0, 0]
        for number, one in enumerate(found["curves"]):
            _line(axis, number, np.array(one["rounds"]), style.scaled(metric, one["values"]), one["label"], count)
        _beside(axis, found)
        axis.set(xlabel="round", ylabel=style.axis_of(metric))
        axis.grid(alpha=0.3)
        style.legend(axis, count + (found["target"] is not None) + (found["start"] is not None))
    return figure


def _line(axis, number: int, rounds: np.ndarray, values: np.ndarray, label: str, count: int) -> None:
    look = style.look(number)
    with warnings.catch_warnings():
        # A round in which every seed was NaN has no mean, and leaves a gap.
        warnings.simplefilter("ignore", RuntimeWarning)
        mean, std = np.nanmean(values, 0), np.nanstd(values, 0)
    if len(values) > 1:
        axis.fill_between(rounds, mean - std, mean + std, color=look["color"], alpha=0.15, linewidth=0)
        for seed in values:
            axis.plot(rounds, seed, color=look["color"], alpha=0.25, linewidth=0.5)
    # Markers of several lines stand at different places.
    step = max(len(rounds) // MARKED, 1)
    axis.plot(rounds, mean, label=label, markevery=(step * number // count % step, step), **look)


def _beside(axis, found: dict[str, Any]) -> None:
    """Draws the lines of a target and of a start, and sets the axis of the values."""
    if found["log"]:
        from matplotlib.ticker import LogLocator, NullFormatter

        axis.set_yscale("log")
        axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.yaxis.set_major_formatter("{x:g}")
        axis.yaxis.set_minor_formatter(NullFormatter())
    if found["target"] is not None:
        height = float(style.scaled(found["metric"], found["target"]))
        label = f"target {style.level(found['metric'], found['target'])}"
        axis.axhline(height, color="0.35", linewidth=1, linestyle=(0, (4, 3)), label=label)
    if found["start"] is not None:
        axis.axvline(found["start"], color="0.35", linewidth=1, linestyle=":", label=f"round {found['start']}")
    low, high = found["limits"] or (None, None)
    if low is not None:
        axis.set_ylim(bottom=float(style.scaled(found["metric"], low)))
    if high is not None:
        axis.set_ylim(top=float(style.scaled(found["metric"], high)))
