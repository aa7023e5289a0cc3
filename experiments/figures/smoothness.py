"""Figure of the round-to-round standard deviation of a metric, per run and read-out."""

import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedwin import analysis
from fedwin.errors import UserError

from . import curves, style
from .sources import Series


def compute(series: Sequence[Series], metric: str = "accuracy", last: int = 100) -> dict[str, Any]:
    """Returns the round-to-round standard deviation of each curve's last rounds, and their mean, per seed.

        s^2 = 1/2 mean_t (a_{t + 1} - a_t)^2

    Raises:
      UserError: a curve without two such evaluations.
    """
    last = min(last, max(line["round"] for each in series for line in each.lines))
    methods, steps = [], set[int]()
    for source in series:
        seeds = curves.last_rounds(source, metric, last)
        try:
            std = [analysis.round_to_round_std(own, at) if np.isfinite(own).all() else np.nan for at, own in seeds]
        except UserError as error:
            raise UserError(f"'{source.label}', last {last} rounds: {error}") from error
        means = style.plain([values.mean() for _, values in seeds])
        methods.append({"label": source.label, "std": style.plain(std), "mean": means})
        steps |= {int(np.sum(np.diff(rounds) == 1)) for rounds, _ in seeds}  # no others are compared
    counted = {"last": last, "over": curves.last_in_words(series, metric, last), "steps": sorted(steps)}
    return {"kind": "smoothness", "metric": metric, **counted, "methods": methods}


def draw(result: dict[str, Any], path: str | pathlib.Path | None, title: str):
    """Draws a bar per curve for the mean over seeds, and a dot per seed."""
    methods, metric = result["methods"], result["metric"]
    names = [style.wrapped(method["label"]) for method in methods]
    height = 1.25 + len(methods) * max(0.34, style.height_of(names))
    with style.panels(path, title, width=1.15 * style.WIDTH, height=height) as (figure, grid):
        axis = grid[0, 0]
        longest = 0.0
        looks = style.looks([method["label"] for method in methods])
        for number, (look, method) in enumerate(zip(looks, methods, strict=True)):
            std = style.scaled(metric, method["std"])
            axis.barh(number, std.mean(), height=0.65, color=look["color"], alpha=0.8)
            if len(std) > 1:
                axis.plot(std, np.full(len(std), number), "o", color="black", markersize=4, markeredgecolor="white")
            level = float(style.scaled(metric, method["mean"]).mean())
            end = float(np.nan_to_num(std).max())
            longest = max(longest, end)
            text = f"{std.mean():.3g} (mean {level:.3g})" if np.isfinite(std).all() else "diverged"
            axis.annotate(text, (end, number), (5, 0), textcoords="offset points", va="center", fontsize=7.5)
        axis.set_yticks(range(len(methods)), names)
        axis.set_ylim(len(methods) - 0.4, -0.6)
        unit = "points" if style.is_share(metric) else style.axis_of(metric, "")
        seeds = style.mean_of(len(method["std"]) for method in methods)
        note = f"\n({seeds}, dots: seeds)" if seeds else ""
        few, *_, many = 2 * result["steps"]
        steps = f"{few if few == many else f'{few} to {many}'} steps in " if few < result["last"] - 1 else ""
        label = f"std from round to round ({unit})\nover {steps}{result['over']}{note}"
        axis.set(xlabel=label, xlim=(0, 1.5 * longest or 1))
        axis.grid(alpha=0.3, axis="x")
    return figure
