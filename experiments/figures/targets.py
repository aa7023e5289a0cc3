"""Rounds, and bytes, until a method first reaches a target."""

import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedwin import analysis
from fedwin.errors import UserError
from fedwin.registry import nearest

from ..tables.formats import plain_table
from . import curves, style
from .sources import Series

KIND = "targets"
MEGABYTE = 10**6


def compute(
    series: Sequence[Series],
    targets: Sequence[float],
    per_round: Sequence[int | None] = (),
    metric: str = "accuracy",
    baseline: str | None = None,
) -> dict[str, Any]:
    """Returns the first round in which each curve reaches each target, per seed, without smoothing.

    Args:
      series: which curves.
      targets: values of the metric.
      per_round: bytes that all clients of a round of each curve's run receive and send; None: not known.
      metric: of the evaluations.
      baseline: label of the curve that speed-ups refer to; by default the first.

    Raises:
      UserError: no target, or no curve of the baseline's name.
    """
    if not series or not targets:
        raise UserError("targets: name a run, and a value to be reached, such as --target=0.6.")
    labels = [one.label for one in series]
    if baseline is not None and baseline not in labels:
        raise UserError(f"baseline '{baseline}': there is no such curve.{nearest(baseline, labels)}")
    found = []
    for number, one in enumerate(series):
        rounds, values = curves.curve(one.lines, one.readout, metric)
        reached = [[analysis.rounds_to_target(seed, target, rounds) for seed in values] for target in targets]
        cost = per_round[number] if per_round else None
        entry: dict[str, Any] = {
            "label": one.label,
            "last": int(rounds[-1]),
            "bytes_per_round": cost,
            "rounds": reached,
        }
        found.append(entry | {"mean": [_mean(seeds) for seeds in reached]})
    first = found[labels.index(baseline) if baseline is not None else 0]
    for entry in found:
        pairs = zip(first["mean"], entry["mean"])
        entry["speedup"] = [then / now if then and now else None for then, now in pairs]
    return {"kind": KIND, "metric": metric, "targets": list(targets), "baseline": first["label"], "methods": found}


def _mean(rounds: Sequence[int | None]) -> float | None:
    """Returns the mean over seeds, if all of them got there."""
    reached = [one for one in rounds if one is not None]
    return float(np.mean(reached)) if len(reached) == len(rounds) else None


def table(found: dict[str, Any]) -> str:
    """Returns a row per curve: rounds, speed-up and MB for every target."""
    head = ["run"]
    for target in found["targets"]:
        head += [f"rounds to {style.level(found['metric'], target)}", "speed-up", "MB"]
    rows = [tuple(head)]
    for one in found["methods"]:
        cells = [one["label"]]
        for seeds, mean, speedup in zip(one["rounds"], one["mean"], one["speedup"]):
            reached = sum(seed is not None for seed in seeds)
            missed = f"> {one['last']}" if len(seeds) == 1 else f"> {one['last']} ({reached}/{len(seeds)} seeds)"
            cells += [
                missed if mean is None else f"{mean:.1f}".removesuffix(".0"),
                "-" if speedup is None else f"{speedup:.2f}",
                "-" if mean is None or not one["bytes_per_round"] else f"{_megabytes(one, mean):.1f}",
            ]
        rows.append(tuple(cells))
    return plain_table(rows)


def _megabytes(method: dict[str, Any], rounds: float) -> float:
    return rounds * method["bytes_per_round"] / MEGABYTE


def _missed(method: dict[str, Any], number: int) -> str:
    """Returns what stands in place of a bar where not all seeds reach a target."""
    seeds = method["rounds"][number]
    reached = sum(seed is not None for seed in seeds)
    who = f"{reached} of {len(seeds)} seeds" if reached else "not"
    return f"{who} within {method['last']} rounds"


def _short(number: float) -> str:
    return f"{number:.0f}" if number >= 100 or number == int(number) else f"{number:.3g}"


def draw(found: dict[str, Any], path: str | pathlib.Path | None, title: str):
    """Draws bars of rounds and, where all traffic is known, of MB; a curve that does not get there says so.

    Args:
      found: what `compute` returned.
      path: where the picture goes; None: nowhere.
      title: the line above it.

    Returns:
      The matplotlib figure.
    """
    methods, targets = found["methods"], found["targets"]
    known = all(one["bytes_per_round"] for one in methods)
    bars = len(methods) * len(targets)
    height = 1.3 + 0.2 * bars + 0.12 * len(methods)
    with style.panels(path, title, 1, 1 + known, width=0.95 * style.WIDTH, height=height, sharey=True) as (
        figure,
        grid,
    ):
        _bars(grid[0, 0], found, "round (first)", lambda method, rounds: rounds)
        if known:
            _bars(grid[0, 1], found, "sent and received until then (MB)", _megabytes)
        grid[0, 0].set_yticks(range(len(methods)), [style.wrapped(one["label"]) for one in methods])
        grid[0, 0].invert_yaxis()
        handles, labels = grid[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(targets), frameon=False)
    return figure


def _bars(axis, found: dict[str, Any], name: str, cost) -> None:
    """Draws one panel: a group of bars per method, a bar per target."""
    methods, targets = found["methods"], found["targets"]
    height = 0.8 / len(targets)
    longest = max([cost(one, mean) for one in methods for mean in one["mean"] if mean is not None], default=1)
    for number, target in enumerate(targets):
        colour = style.colour(number)
        at = np.arange(len(methods)) + (number - (len(targets) - 1) / 2) * height
        lengths = [0 if one["mean"][number] is None else cost(one, one["mean"][number]) for one in methods]
        shown = f"{found['metric']} {style.level(found['metric'], target)}"
        axis.barh(at, lengths, height=0.9 * height, color=colour, label=shown)
        for place, length, one in zip(at, lengths, methods):
            text = _short(length) if one["mean"][number] is not None else _missed(one, number)
            axis.annotate(text, (length, place), (3, 0), textcoords="offset points", va="center", fontsize=7)
    axis.set(xlabel=name, xlim=(0, 1.3 * longest))
    axis.grid(alpha=0.3, axis="x")
    axis.set_axisbelow(True)
