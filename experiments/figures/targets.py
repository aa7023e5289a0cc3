"""Figure and table of the rounds, megabytes and simulated seconds until a method first reaches a target."""

import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedwin import analysis
from fedwin.errors import UserError

from . import curves, style
from .sources import Series

KIND = "targets"
MEGABYTE = 10**6


def compute(
    series: Sequence[Series],
    targets: Sequence[float],
    per_round: Sequence[int | None] = (),
    metric: str = "accuracy",
) -> dict[str, Any]:
    """Returns the first round in which each curve reaches each target, per seed, and speed-ups relative to the first.

    Args:
      series: the curves.
      targets: values of the metric.
      per_round: bytes that all clients of a round receive and send, for each curve; None: unknown.
      metric: of the evaluations.

    Raises:
      UserError: no target.
    """
    if not series or not targets:
        raise UserError("targets: name a run, and a value to reach, such as --target=0.6.")
    methods = []
    for number, source in enumerate(series):
        rounds, values = curves.curve(source.lines, source.readout, metric)
        reached = [[analysis.rounds_to_target(seed, target, rounds) for seed in values] for target in targets]
        cost = per_round[number] if per_round else None
        entry: dict[str, Any] = {
            "label": source.label,
            "last": int(rounds[-1]),
            "bytes_per_round": cost,
            "rounds": reached,
        }
        if all("simulated_seconds" in line for line in source.lines):
            entry["clock"] = [rounds.tolist(), curves.places(source, rounds, "simulated_seconds")]
        methods.append(entry | {"mean": [_mean(seeds) for seeds in reached]})
    first = methods[0]
    for entry in methods:
        pairs = zip(first["mean"], entry["mean"])
        entry["speedup"] = [then / now if then and now else None for then, now in pairs]
    return {"kind": KIND, "metric": metric, "targets": list(targets), "baseline": first["label"], "methods": methods}


def _mean(rounds: Sequence[int | None]) -> float | None:
    """Returns the mean over seeds; None if one does not reach the target."""
    reached = [number for number in rounds if number is not None]
    return float(np.mean(reached)) if len(reached) == len(rounds) else None


def rows(result: dict[str, Any]) -> list[tuple[str, ...]]:
    """Returns the cells of a table, its head first.

    A row per curve: rounds, speed-up and MB for every target, and the time of a simulated clock.
    """
    head, timed = ["run"], _timed(result)
    for target in result["targets"]:
        head += [f"rounds to {style.level(result['metric'], target)}", "speed-up", "MB", *["simulated s"] * timed]
    table = [tuple(head)]
    for method in result["methods"]:
        cells = [method["label"]]
        for seeds, mean, speedup in zip(method["rounds"], method["mean"], method["speedup"]):
            reached = sum(seed is not None for seed in seeds)
            missed = f"> {method['last']}" if len(seeds) == 1 else f"> {method['last']} ({reached}/{len(seeds)} seeds)"
            cells += [
                missed if mean is None else f"{mean:.1f}".removesuffix(".0"),
                "-" if speedup is None else f"{speedup:.2f}",
                "-" if mean is None or not method["bytes_per_round"] else f"{_megabytes(method, mean):.1f}",
            ]
            if timed:
                cells.append("-" if mean is None else f"{_seconds(method, mean):.1f}")
        table.append(tuple(cells))
    return table


def _megabytes(method: dict[str, Any], rounds: float) -> float:
    return rounds * method["bytes_per_round"] / MEGABYTE


def _timed(result: dict[str, Any]) -> bool:
    """Whether all runs have a simulated clock."""
    return all("clock" in method for method in result["methods"])


def _seconds(method: dict[str, Any], rounds: float) -> float:
    return float(np.interp(rounds, *method["clock"]))


def _missed(method: dict[str, Any], number: int) -> str:
    """Returns the text in place of a bar where some seeds do not reach a target."""
    seeds = method["rounds"][number]
    reached = sum(seed is not None for seed in seeds)
    who = f"{reached} of {len(seeds)} seeds" if reached else "not"
    return f"{who} within {method['last']} rounds"


def _short(number: float) -> str:
    return f"{number:.0f}" if number >= 100 or number == int(number) else f"{number:.3g}"


def draw(result: dict[str, Any], path: str | pathlib.Path | None, title: str):
    """Draws bars of rounds and, if all curves have them, of MB and simulated seconds."""
    methods, targets = result["methods"], result["targets"]
    has_traffic = all(method["bytes_per_round"] for method in methods)
    further = [("sent and received until then (MB)", _megabytes)] if has_traffic else []
    further += [("simulated time until then (s)", _seconds)] if _timed(result) else []
    bars = len(methods) * len(targets)
    height = 1.3 + 0.2 * bars + 0.12 * len(methods)
    with style.panels(path, title, 1, 1 + len(further), width=0.95 * style.WIDTH, height=height, sharey=True) as (
        figure,
        grid,
    ):
        _bars(grid[0, 0], result, "round (first)", lambda method, rounds: rounds)
        for column, (name, cost) in enumerate(further, 1):
            _bars(grid[0, column], result, name, cost)
        grid[0, 0].set_yticks(range(len(methods)), [style.wrapped(method["label"]) for method in methods])
        grid[0, 0].invert_yaxis()
        if len(targets) > 1:
            names = [_reaching(result, target) for target in targets]
            handles = [_sample(number) for number in range(len(targets))]
            figure.legend(handles, names, loc="outside lower center", ncols=len(targets), frameon=False)
    return figure


def _reaching(result: dict[str, Any], target: float) -> str:
    return f"{result['metric']} {style.level(result['metric'], target)}"


def _texture(number: int) -> dict[str, Any]:
    """Returns opacity and hatch of the bars of the n-th target, which have the color of their method."""
    return {"alpha": (1.0, 0.65, 0.35)[number % 3], "hatch": ("", "//", "..")[number // 3 % 3], "edgecolor": "white"}


def _sample(number: int):
    """Returns the entry of a legend for the n-th target."""
    from matplotlib.patches import Patch

    return Patch(facecolor=style.NEUTRAL, **_texture(number))


def _bars(axis, result: dict[str, Any], name: str, cost) -> None:
    """Draws a panel with a group of bars per method, in its color, and a bar per target."""
    methods, targets = result["methods"], result["targets"]
    colors = [look["color"] for look in style.looks([method["label"] for method in methods])]
    height = 0.8 / len(targets)
    longest = max([cost(method, mean) for method in methods for mean in method["mean"] if mean is not None], default=1)
    for number in range(len(targets)):
        at = np.arange(len(methods)) + (number - (len(targets) - 1) / 2) * height
        lengths = [0 if method["mean"][number] is None else cost(method, method["mean"][number]) for method in methods]
        axis.barh(at, lengths, height=0.9 * height, color=colors, **_texture(number))
        for place, length, method in zip(at, lengths, methods):
            text = _short(length) if method["mean"][number] is not None else _missed(method, number)
            axis.annotate(text, (length, place), (3, 0), textcoords="offset points", va="center", fontsize=7)
    name = name if len(targets) > 1 else f"{name}, {_reaching(result, targets[0])}"
    axis.set(xlabel=name, xlim=(0, 1.3 * longest))
    axis.grid(alpha=0.3, axis="x")
    axis.set_axisbelow(True)
