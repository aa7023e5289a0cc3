"""Figure and table of the rounds, megabytes and simulated seconds until a method first reaches a target."""

import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedwin import analysis
from fedwin.callbacks.scores import is_lower, mean_of, title_of
from fedwin.errors import UserError

from . import curves, style
from .sources import Series

# Costs until a round -> (key in a line of metrics, axis label).
COSTS = {
    "bytes": ("bytes_up", "sent and received until then (MB)"),
    "simulated_seconds": ("simulated_seconds", "simulated time until then (s)"),
}


def compute(series: Sequence[Series], targets: Sequence[float], metric: str = "accuracy") -> dict[str, Any]:
    """Returns the first round in which each curve reaches each target, per seed, and speed-ups over the first model.

    A loss or RMSE reaches a target from above. Seeds that diverged or were stopped early count as any other. Where a
    seed reaches it at its first evaluation, as a fork may, the round is a bound, without a speed-up; round 0 is none.

    Raises:
      UserError: no target, one in percent, or a curve without such evaluations.
    """
    if not series or not targets:
        raise UserError("targets: name a run, and a value to reach, such as --target=0.6.")
    style.check_shares(metric, targets)
    methods = []
    for source in series:
        seeds = curves.by_seed(source, metric, diverged=True)
        sign = -1 if is_lower(metric) else 1
        signed = [(sign * np.array(list(own.values())), list(own)) for own in seeds.values()]
        reached = [[analysis.rounds_to_target(v, sign * target, at) for v, at in signed] for target in targets]
        entry: dict[str, Any] = {"label": source.label, "last": max(map(max, seeds.values())), "rounds": reached}
        for name, (key, _) in COSTS.items():
            if all(key in line for line in source.lines):
                entry[name] = _costs(source, name, list(seeds), reached)
        entry["bound"] = [any(seed == own[1][0] > 0 for seed, own in zip(seeds, signed)) for seeds in reached]
        methods.append(entry | {"mean": [None if None in seeds else mean_of(seeds) for seeds in reached]})
    first = next((entry for entry, each in zip(methods, series) if each.readout == "model"), methods[0])
    for entry in methods:
        ratios = map(analysis.speedup, first["mean"], entry["mean"])
        bounds = zip(first["bound"], entry["bound"])
        entry["speedup"] = [None if any(either) else ratio for either, ratio in zip(bounds, ratios)]
    found = {"targets": list(targets), "baseline": first["label"], "methods": methods}
    return {"kind": "targets", "metric": metric, **found}


def _costs(source: Series, name: str, seeds: Sequence[int], reached: Sequence[Sequence[Any]]) -> list[float | None]:
    """Returns the mean over seeds of the megabytes or seconds until each reaches a target; None if one does not."""
    own = {seed: source._replace(lines=[line for line in source.lines if line["seed"] == seed]) for seed in seeds}
    cost = lambda seed, round: curves.places(own[seed], np.array([round]), name)[0]
    return [None if None in rounds else mean_of(map(cost, seeds, rounds)) for rounds in reached]


def rows(result: dict[str, Any]) -> list[tuple[str, ...]]:
    """Returns the cells of a table, its head first.

    A row per curve and target: rounds, speed-up, MB, and the time of a simulated clock.
    """
    timed, over = _known(result, "simulated_seconds"), f"speed-up over {result['baseline']}"
    table: list[tuple[str, ...]] = [("run", result["metric"], "rounds", over, "MB", *["simulated s"] * timed)]
    for method in result["methods"]:
        for number, target in enumerate(result["targets"]):
            seeds, mean, speedup, bound = (method[name][number] for name in ("rounds", "mean", "speedup", "bound"))
            reached = sum(seed is not None for seed in seeds)
            missed = f"> {method['last']}" if len(seeds) == 1 else f"> {method['last']} ({reached}/{len(seeds)} seeds)"
            costs = (
                "-" if mean is None or name not in method else f"{'<= ' * bound}{method[name][number]:.1f}"
                for name in ("bytes", *["simulated_seconds"] * timed)
            )
            rounds = missed if mean is None else f"{'<= ' * bound}{mean:.1f}".removesuffix(".0")
            ratio = "-" if speedup is None else f"{speedup:.2f}"
            table.append((method["label"], style.level(result["metric"], target), rounds, ratio, *costs))
    return table


def _known(result: dict[str, Any], name: str) -> bool:
    return all(name in method for method in result["methods"])


def _missed(method: dict[str, Any], number: int) -> str:
    """Returns the text in place of a bar where some seeds do not reach a target."""
    seeds = method["rounds"][number]
    reached = sum(seed is not None for seed in seeds)
    who = f"{reached} of {len(seeds)} seeds" if reached else "not"
    return f"{who} within {method['last']} rounds"


def draw(result: dict[str, Any], path: str | pathlib.Path | None, title: str):
    """Draws bars of rounds and, if all curves have them, of MB and simulated seconds."""
    from matplotlib.patches import Patch

    methods, targets = result["methods"], result["targets"]
    panels = {"mean": "round (first)"} | {name: label for name, (_, label) in COSTS.items() if _known(result, name)}
    names = [style.wrapped(method["label"]) for method in methods]
    height = 1.3 + len(methods) * max(0.2 * len(targets) + 0.12, style.height_of(names))
    size = {"width": 0.95 * style.WIDTH, "height": height}
    with style.panels(path, title, 1, len(panels), sharey=True, **size) as (figure, grid):
        for axis, (name, label) in zip(grid[0], panels.items()):
            _bars(axis, result, label, name)
        grid[0, 0].set_yticks(range(len(methods)), names)
        grid[0, 0].invert_yaxis()
        grid[0, 0].xaxis.get_major_locator().set_params(integer=True)
        if len(targets) > 1:
            shown = [_reaching(result, target) for target in targets]
            handles = [Patch(facecolor=style.NEUTRAL, **_texture(number)) for number in range(len(targets))]
            figure.legend(handles, shown, loc="outside lower center", ncols=min(len(targets), 4), frameon=False)
    return figure


def _reaching(result: dict[str, Any], target: float) -> str:
    return f"{title_of(result['metric'])} {style.level(result['metric'], target)}"


def _texture(number: int) -> dict[str, Any]:
    """Returns opacity and hatch of the bars of the n-th target, which have the color of their method."""
    return {"alpha": (1.0, 0.65, 0.35)[number % 3], "hatch": ("", "//", "..")[number // 3 % 3], "edgecolor": "white"}


def _bars(axis, result: dict[str, Any], name: str, cost: str) -> None:
    """Draws a panel with a group of bars per method, in its color, and a bar per target."""
    methods, targets = result["methods"], result["targets"]
    colors = [look["color"] for look in style.looks([method["label"] for method in methods])]
    height = 0.8 / len(targets)
    longest = max([each for method in methods for each in method[cost] if each is not None], default=1)
    for number in range(len(targets)):
        at = np.arange(len(methods)) + (number - (len(targets) - 1) / 2) * height
        lengths = [method[cost][number] or 0 for method in methods]
        axis.barh(at, lengths, height=0.9 * height, color=colors, **_texture(number))
        for place, length, method in zip(at, lengths, methods):
            short = f"{length:.0f}" if length >= 100 or length == int(length) else f"{length:.3g}"
            short = "<= " * method["bound"][number] + short
            text = short if method["mean"][number] is not None else _missed(method, number)
            axis.annotate(text, (length, place), (3, 0), textcoords="offset points", va="center", fontsize=7)
    name = name if len(targets) > 1 else f"{name}, {_reaching(result, targets[0])}"
    seeds = style.mean_of(len(each) for method in methods for each in method["rounds"])
    axis.set(xlabel=f"{name}\n({seeds})" if seeds else name, xlim=(0, 1.3 * longest or 1))
    axis.grid(alpha=0.3, axis="x")
    axis.set_axisbelow(True)
