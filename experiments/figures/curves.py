"""Accuracy, loss and the like over rounds, bytes or time: several runs and read-outs, mean and band over seeds."""

import math
import pathlib
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedwin.errors import UserError

from . import style
from .sources import Series

# Most markers of a curve.
MARKED = 12
# More curves than this have no bands and no line per seed: these would hide each other.
CLEAR = 5
# What the horizontal axis may show -> its label.
AXES = {
    "round": "round",
    "bytes": "received and sent by clients (MB)",
    "seconds": "training time (s)",
    "simulated_seconds": "simulated time (s)",
}


def by_seed(
    source: Series, metric: str = "accuracy", every: int = 1, diverged: bool = False
) -> dict[int, dict[int, float]]:
    """Returns seed -> round -> value of a metric, of the seeds that count.

    Evaluations without the metric, such as those that leave out --eval_clients, are not points of a curve. Seeds that
    diverged, or have fewer rounds than others, are left out unless all did; seeds that were stopped early are not.

    Args:
      every: only rounds that are multiples of this, so that the points of a curve are evenly spaced.
      diverged: whether seeds that diverged count, too.

    Raises:
      UserError: there is no evaluation of the read-out, or it lacks the metric.
    """
    found: dict[int, dict[int, float]] = {}
    known: dict[str, None] = {}
    label, readout = source.label, source.readout
    for line in source.lines:
        if readout in line and line["round"] % every == 0:
            known |= dict.fromkeys(line[readout])
            if metric in line[readout]:
                found.setdefault(line["seed"], {})[line["round"]] = float(line[readout][metric])
    if known and not found:
        has = f"{readout} has {', '.join(known)}"
        raise UserError(f"'{label}': metric '{metric}': {has}; name another metric or read-out.")
    if not found or (every > 1 and not any(map(max, found.values()))):
        after = f" after a multiple of {every} rounds (--every)" if every > 1 else ""
        raise UserError(f"'{label}': there is no evaluation of {readout} to draw{after}.")
    end, lost = max(map(max, found.values())), diverged_at(source)
    counts = lambda seed: diverged if seed in lost else max(found[seed]) == end or seed in source.stopped
    return {seed: own for seed, own in found.items() if counts(seed)} or found


def curve(source: Series, metric: str = "accuracy", every: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Returns (rounds [R], values [S, R]) of `by_seed` for the rounds that all of its seeds have; S >= 1."""
    used = by_seed(source, metric, every).values()
    rounds = sorted(set.intersection(*map(set, used)))
    return np.array(rounds), np.array([[own[r] for r in rounds] for own in used])


def last_rounds(source: Series, metric: str, last: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Returns (rounds, values) of each seed's last rounds, never of the model that it starts from.

    Of a seed that diverged, which counts if all did, the value is NaN: its last rounds are too favorable.
    """
    seeds, first, lost = by_seed(source, metric), _begun(source), diverged_at(source)
    starts = {seed: max(max(own) - last, first[seed]) for seed, own in seeds.items()}
    shown = [
        [(lost[seed], math.nan)] if seed in lost else [pair for pair in own.items() if pair[0] > starts[seed]]
        for seed, own in seeds.items()
    ]
    if not all(shown):
        raise UserError(f"'{source.label}' has no evaluation after a round yet; continue the run.")
    return [(np.array([round for round, _ in pairs]), np.array([value for _, value in pairs])) for pairs in shown]


def _begun(source: Series) -> dict[int, int]:
    """Returns seed -> the round that it starts after: 0, or that of a fork."""
    return {line["seed"]: line["round"] for line in reversed(source.lines)}


def last_in_words(series: Sequence[Series], metric: str, last: int) -> str:
    """Returns the rounds of `last_rounds` in words, at most all of the longest run; others may have fewer."""
    found = ((_begun(source), by_seed(source, metric)) for source in series)
    ends = [max(own) - first[seed] for first, seeds in found for seed, own in seeds.items()]
    last = min(last, max(ends))
    return f"{'at most ' if min(ends) < last else ''}the last {last} rounds"


def diverged_at(source: Series) -> dict[int, int]:
    """Returns seed -> the first round with a loss that is not finite; of a finished run also between evaluations."""
    found: dict[int, int] = {}
    for line in source.lines:
        if source.readout in line and not math.isfinite(float(line[source.readout].get("loss", 0))):
            found[line["seed"]] = min(found.get(line["seed"], line["round"]), line["round"])
    return {**found, **source.diverged}


def places(source: Series, rounds: np.ndarray, x: str) -> list[float]:
    """Returns where evaluations stand on the horizontal axis: means over the seeds that have all of them [R].

    Args:
      rounds: rounds of its evaluations [R].
      x: one of AXES.

    Raises:
      UserError: the evaluations have no such number.
    """
    found: dict[int, dict[int, float]] = {}
    wanted = set(rounds.tolist())
    for line in source.lines:
        if line["round"] not in wanted:
            continue
        value = line["bytes_down"] + line["bytes_up"] if x == "bytes" and "bytes_up" in line else line.get(x)
        if value is None:
            remedy = "train it with --clock=bandwidth" if x == "simulated_seconds" else "choose another --x"
            raise UserError(f"'{source.label}' has no {x} in round {line['round']}; {remedy}.")
        found.setdefault(line["seed"], {})[line["round"]] = value / 1e6 if x == "bytes" else value
    complete = [own for own in found.values() if len(own) == len(rounds)]
    return [float(np.mean([own[round] for own in complete])) for round in rounds.tolist()]


def compute(
    series: Sequence[Series],
    metric: str = "accuracy",
    *,
    x: str = "round",
    every: int = 1,
    target: float | None = None,
    limits: tuple[float | None, float | None] | None = None,
    log: bool = False,
) -> dict[str, Any]:
    """Returns the curves, and the lines and limits that are drawn with them.

    Args:
      x: the horizontal axis, one of AXES.
      target: value that is marked by a horizontal line.
      limits: lowest and highest value of the axis; None: determined by the data.

    Raises:
      UserError: a curve without such evaluations, or a line or limit that can't be drawn.
    """
    low, high = limits or (None, None)
    drawn = [math.isfinite(at) and (at > 0 or not log) for at in (target, low, high) if at is not None]
    if not all(drawn) or (low is not None is not high and low >= high):
        raise UserError(f"target and lowest < highest must be finite numbers{' > 0 with --log' if log else ''}.")
    style.check_shares(metric, (target, low, high))
    entries = []
    for source in series:
        rounds, values = curve(source, metric, every)
        shown = rounds >= source.since
        if not shown.any():
            raise UserError(f"'{source.label}' has no evaluation from round {source.since} on.")
        entry = {"label": source.label, "rounds": rounds[shown].tolist(), "values": style.plain(values[:, shown])}
        if x == "round" and (ends := sorted(diverged_at(source).values())):
            entry["lost"] = ends
        entries.append(entry if x == "round" else entry | {"x": places(source, rounds[shown], x)})
    options = {"target": target, "limits": list(limits) if limits else None, "log": log}
    return {"kind": "curves", "metric": metric, "curves": entries, **options, **({} if x == "round" else {"x": x})}


def draw(result: dict[str, Any], path: str | pathlib.Path | None, title: str):
    """Draws the mean over seeds, a band of one standard deviation, and a thin line per seed."""
    metric, count, lost = result["metric"], len(result["curves"]), result.get("lost", [])
    clear = count <= CLEAR
    height = (1.1 if clear else 1.35) * style.HEIGHT
    with style.panels(path, title, width=1.2 * style.WIDTH, height=height) as (figure, grid):
        axis = grid[0, 0]
        looks = style.looks([entry["label"] for entry in result["curves"]] + lost)
        for number, (entry, look) in enumerate(zip(result["curves"], looks, strict=False)):
            values = style.scaled(metric, entry["values"])
            rounds = np.array(entry.get("x", entry["rounds"]))
            _line(axis, look, rounds, values, entry["label"], number / count, clear)
        for label, look in zip(lost, looks[count:], strict=True):
            axis.plot([], [], "x", color=look["color"], label=f"{label}: diverged")
        ended = [(look["color"], entry["lost"]) for look, entry in zip(looks, result["curves"]) if "lost" in entry]
        for number, (color, rounds) in enumerate(ended):
            style.mark_lost(axis, rounds, color, None if number else "a seed diverged")
        _annotate(axis, result)
        seeds = style.mean_of(len(entry["values"]) for entry in result["curves"])
        note = f" ({seeds}{', band: 1 std' if clear else ''})" if seeds else ""
        axis.set(xlabel=AXES[result.get("x", "round")] + note, ylabel=style.axis_of(metric))
        axis.xaxis.get_major_locator().set_params(integer="x" not in result, min_n_ticks=1)
        axis.grid(alpha=0.3)
        style.legend(axis)
    return figure


def _line(
    axis, look: dict[str, Any], rounds: np.ndarray, values: np.ndarray, label: str, shift: float, clear: bool
) -> None:
    with warnings.catch_warnings():
        # A round in which every seed is NaN leaves a gap.
        warnings.simplefilter("ignore", RuntimeWarning)
        mean = np.nanmean(values, 0)
        std = np.nanstd(values, 0, ddof=1) if len(values) > 1 else None
    if std is not None and clear:
        axis.fill_between(rounds, mean - std, mean + std, color=look["color"], alpha=0.15, linewidth=0)
        for seed in values:
            axis.plot(rounds, seed, color=look["color"], alpha=0.25, linewidth=0.5)
    # The markers of the lines are shifted against each other.
    step = max(len(rounds) // MARKED, 1)
    axis.plot(rounds, mean, label=label, markevery=(int(step * shift), step), **look)


def _annotate(axis, result: dict[str, Any]) -> None:
    """Marks the target, and sets scale and limits of the axis of values."""
    if result["log"]:
        from matplotlib.ticker import LogLocator, NullFormatter

        axis.set_yscale("log")
        axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.yaxis.set_major_formatter("{x:g}")
        axis.yaxis.set_minor_formatter(NullFormatter())
    if result["target"] is not None:
        height = float(style.scaled(result["metric"], result["target"]))
        label = f"target {style.level(result['metric'], result['target'])}"
        axis.axhline(height, color="0.35", linewidth=1, linestyle=(0, (4, 3)), label=label)
    low, high = result["limits"] or (None, None)
    if low is not None:
        axis.set_ylim(bottom=float(style.scaled(result["metric"], low)))
    if high is not None:
        axis.set_ylim(top=float(style.scaled(result["metric"], high)))
    elif not result["log"]:
        style.end_at_hundred(axis, result["metric"])
