"""Accuracy against a parameter: heterogeneity, participation, local epochs, windows, start rounds, rates."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedwin.errors import UserError
from fedwin.registry.choices import parse

from . import curves, style
from .sources import Series

KIND = "sweeps"
# Beyond this ratio of the largest to the smallest value a logarithmic axis reads better.
WIDE = 15


def compute(
    methods: Mapping[str, Mapping[float, Sequence[float]]],
    parameter: str,
    metric: str = "accuracy",
    *,
    log: bool | None = None,
    limits: tuple[float | None, float | None] | None = None,
) -> dict[str, Any]:
    """Returns mean and standard deviation over seeds for every method and value.

    Args:
      methods: label -> value of the parameter -> a number per seed.
      parameter: how its axis is named, with a unit if it has one.
      metric: what the numbers are.
      log: whether the parameter has a logarithmic axis; None: where the values are wide apart. 0 is shown at its end.
      limits: lowest and highest number shown; None where the data decide.

    Raises:
      UserError: there is nothing to draw, or a value without a number.
    """
    found = []
    for label, points in methods.items():
        if not points or not all(len(numbers) for numbers in points.values()):
            raise UserError(f"'{label}' has a value of {parameter} without a result; leave it out.")
        at = sorted(points)
        means = [float(np.mean(points[x])) for x in at]
        stds = [float(np.std(points[x], ddof=1)) if len(points[x]) > 1 else None for x in at]
        each = [style.plain(np.array(points[x], float)) for x in at]
        entry = {"label": label, "x": [float(x) for x in at], "mean": style.plain(means), "std": stds, "seeds": each}
        found.append(entry)
    if not found:
        raise UserError("there is no method to draw.")
    values = sorted({x for one in found for x in one["x"] if x > 0})
    wide = bool(values) and values[-1] / values[0] > WIDE
    options = {"log": wide if log is None else log, "limits": list(limits) if limits else None}
    return {"kind": KIND, "parameter": parameter, "metric": metric, "methods": found, **options}


def of_runs(
    series: Sequence[Series], parameter: str, metric: str = "accuracy", last: int = 10
) -> dict[str, dict[float, list[float]]]:
    """Returns the `methods` of `compute` from runs that differ in one parameter.

    Args:
      series: one per run and read-out.
      parameter: a field of Config (`clients_per_round`), or the parameter of a choice (`partition.alpha`).
      metric: which number.
      last: the mean over so many last rounds counts.

    Returns:
      Algorithm and read-out -> value -> a number per seed.

    Raises:
      UserError: a run's configuration has no such number.
    """
    found: dict[str, dict[float, list[float]]] = {}
    for one in series:
        config = one.header.get("config", {})
        value = _value(one.label, config, parameter)
        name = " + ".join([config.get("algorithm", "?"), *config.get("wrap", [])])
        name = name if one.readout == "model" else f"{name}: {one.readout}"
        rounds, values = curves.curve(one.lines, one.readout, metric)
        means = values[:, rounds > rounds[-1] - last].mean(1)
        found.setdefault(name, {}).setdefault(value, []).extend(means.tolist())
    return found


def _value(label: str, config: Mapping[str, Any], parameter: str) -> float:
    """Returns the value of a parameter in a run's configuration."""
    field, _, inner = parameter.partition(".")
    if field not in config:
        raise UserError(f"parameter '{parameter}': {label} has no flag --{field}.")
    held = config[field]
    if inner:
        choices = [parse(text) for text in ([held] if isinstance(held, str) else held) if text]
        values = [choice.params[inner] for choice in choices if inner in choice.params]
        held = values[0] if len(values) == 1 else None
    if isinstance(held, bool) or not isinstance(held, (int, float)):
        raise UserError(f"parameter '{parameter}' is not a number in {label}; name one such as clients_per_round.")
    return float(held)


def draw(found: dict[str, Any], path: str | pathlib.Path | None, title: str):
    """Draws a line per method, with bars of one standard deviation over seeds.

    Args:
      found: what `compute` returned.
      path: where the picture goes; None: nowhere.
      title: the line above it.

    Returns:
      The matplotlib figure.
    """
    metric = found["metric"]
    with style.panels(path, title) as (figure, grid):
        axis = grid[0, 0]
        ticks = sorted({x for one in found["methods"] for x in one["x"]})
        if found["log"]:
            _logarithmic(axis, ticks)
        for number, one in enumerate(found["methods"]):
            mean, std = style.scaled(metric, one["mean"]), style.scaled(metric, one["std"])
            axis.errorbar(one["x"], mean, np.nan_to_num(std), label=one["label"], capsize=2.5, **style.look(number))
        axis.set_xticks(ticks, [f"{x:g}" for x in ticks], minor=False)
        axis.minorticks_off()
        if len(ticks) > 9:
            axis.tick_params(axis="x", labelrotation=60)
        low, high = found["limits"] or (None, None)
        axis.set_ylim(*(None if edge is None else float(style.scaled(metric, edge)) for edge in (low, high)))
        if metric == "accuracy" and not found["limits"]:
            axis.set_ylim(*style.widened(*axis.get_ylim()))
        axis.set(xlabel=found["parameter"], ylabel=style.axis_of(metric))
        axis.grid(alpha=0.3)
        style.legend(axis, len(found["methods"]))
    return figure


def _logarithmic(axis, ticks: list[float]) -> None:
    """Makes the axis logarithmic; where 0 is among the values, linear from it to the smallest other one."""
    positive = [x for x in ticks if x > 0]
    if ticks[0] <= 0 < len(positive):
        axis.set_xscale("symlog", linthresh=positive[0], linscale=0.5)
    elif positive:
        axis.set_xscale("log")
