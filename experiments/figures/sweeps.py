"""Figure of a metric against a parameter, such as heterogeneity, participation, local epochs or window sizes."""

import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedwin.errors import UserError
from fedwin.registry.choices import nearest, parse

from . import curves, sources, style
from .sources import Series

# Ratio of the largest to the smallest value from which the axis is logarithmic.
WIDE = 15


def compute(
    methods: Mapping[str, Mapping[float, Sequence[float]]],
    parameter: str,
    metric: str = "accuracy",
    *,
    lost: Mapping[str, Sequence[float]] | None = None,
) -> dict[str, Any]:
    """Returns mean and standard deviation over seeds for every method and value.

    Args:
      methods: label -> value of the parameter -> a number per seed.
      parameter: label of its axis, with its unit.
      lost: label -> values at which the method diverged or is near chance; they are marked, and not to scale. So are
        values whose numbers are all NaN or infinite.

    Raises:
      UserError: there is nothing to draw, or a value without a number.
    """
    entries = []
    for label, points in methods.items():
        nowhere = not points and not (lost or {}).get(label)
        if nowhere or not all(len(numbers) for numbers in points.values()):
            raise UserError(f"'{label}' has a value of {parameter} without a result; leave it out.")
        finite = {x: [number for number in points[x] if math.isfinite(number)] for x in sorted(points)}
        at = [x for x in finite if finite[x]]
        means = [float(np.mean(finite[x])) for x in at]
        stds = [float(np.std(finite[x], ddof=1)) if len(finite[x]) > 1 else None for x in at]
        each = [list(map(float, finite[x])) for x in at]
        entry: dict[str, Any] = {"label": label, "x": [*map(float, at)], "mean": means, "std": stds, "seeds": each}
        marked = sorted({*map(float, (lost or {}).get(label, ())), *map(float, finite.keys() - at)})
        entries.append(entry | ({"lost": marked} if marked else {}))
    if not entries:
        raise UserError(f"there is no read-out to draw over {parameter}; name another parameter, or other read-outs.")
    values = sorted({x for entry in entries for x in entry["x"] if x > 0})
    wide = bool(values) and values[-1] / values[0] > WIDE
    return {"kind": "sweeps", "parameter": parameter, "metric": metric, "methods": entries, "log": wide}


def of_runs(
    series: Sequence[Series], parameter: str, metric: str = "accuracy", last: int = 10
) -> dict[str, dict[float, list[float]]]:
    """Returns the `methods` of `compute` from runs that differ in one parameter.

    Args:
      parameter: a field of Config (`clients_per_round`), or the parameter of a choice (`partition.alpha`); one of an
        observer (`observe.window`) is that of each read-out, and those without it are left out.

    Returns:
      Algorithm and read-out, without the parameter -> value -> a number per seed; NaN where all seeds diverged.

    Raises:
      UserError: a run's configuration has no such field, it is not a number, or runs differ in other fields, too.
    """
    field, _, inner = parameter.partition(".")

    def rest(of: str, text: str) -> str:
        choice = parse(text)
        return str(choice._replace(params={k: v for k, v in choice.params.items() if (of, k) != (field, inner)}))

    numbers: dict[str, dict[float, list[float]]] = {}
    taken, datasets = set[tuple[str, float, int]](), dict[str, str]()
    for source in series:
        config, readout = source.config, source.readout
        if field == "observe":
            own = [text for text in config.get("observe", []) if inner in parse(text).params]
            own = [text for text in own if sources.readout_name(text) == readout]
            if not own:
                continue
            config, readout = config | {"observe": own}, rest("observe", own[0])
        value = _value(source.label, config, parameter)
        wraps = [rest("wrap", text) for text in config.get("wrap", [])]
        name = " + ".join([rest("algorithm", config.get("algorithm", "?")), *wraps]) + (
            f": {readout}" if readout != "model" else ""
        )
        seeds = {line["seed"] for line in source.lines}
        places = {(name, value, seed) for seed in seeds}
        if places & taken:  # they would count as further seeds
            same = f"{source.label}: another run has '{name}' with the same {parameter} and seed"
            raise UserError(f"{same}; draw runs that differ in {parameter} alone.")
        dataset = config.get("dataset", "")
        if field != "dataset" and datasets.setdefault(name, dataset) != dataset:
            raise UserError(f"{source.label}: '{name}' on {dataset} and on {datasets[name]}; draw a figure of each.")
        taken |= places
        means = [values.mean() for _, values in curves.last_rounds(source, metric, last)]
        numbers.setdefault(name, {}).setdefault(value, []).extend(means)
    return numbers


def _value(label: str, config: Mapping[str, Any], parameter: str) -> float:
    field, _, inner = parameter.partition(".")
    if field not in config:
        raise UserError(f"parameter '{parameter}': {label} has no flag --{field}.{nearest(field, config)}")
    value = config[field]
    if inner:
        choices = [parse(text) for text in ([value] if isinstance(value, str) else value) if text]
        values = [choice.params[inner] for choice in choices if inner in choice.params]
        value = values[0] if len(values) == 1 else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UserError(f"parameter '{parameter}' is not a number in {label}; name one such as clients_per_round.")
    return float(value)


def draw(result: dict[str, Any], path: str | pathlib.Path | None, title: str):
    """Draws a line per method, with bars of one standard deviation over seeds."""
    metric = result["metric"]
    with style.panels(path, title) as (figure, grid):
        axis = grid[0, 0]
        ticks = sorted({x for method in result["methods"] for x in (*method["x"], *method.get("lost", ()))})
        positive = [x for x in ticks if x > 0]
        if result["log"] and ticks[0] <= 0:  # linear from 0 to the smallest other value
            axis.set_xscale("symlog", linthresh=positive[0], linscale=0.5)
        elif result["log"]:
            axis.set_xscale("log")
        looks = style.looks([method["label"] for method in result["methods"]])
        for look, method in zip(looks, result["methods"], strict=True):
            mean, std = style.scaled(metric, method["mean"]), style.scaled(metric, method["std"])
            bars = np.nan_to_num(std) if np.isfinite(std).any() else None
            axis.errorbar(method["x"], mean, bars, label=method["label"], capsize=2.5, **look)
        axis.set_xticks(ticks, [f"{x:g}" for x in ticks], minor=False)
        axis.minorticks_off()
        if len(ticks) > 9:
            axis.tick_params(axis="x", labelrotation=60)
        if metric == "accuracy":
            axis.set_ylim(*style.widened(*axis.get_ylim()))
        style.end_at_hundred(axis, metric)
        marked = [(look["color"], method["lost"]) for look, method in zip(looks, result["methods"]) if "lost" in method]
        for number, (color, places) in enumerate(marked):
            style.mark_lost(axis, places, color, None if number else style.NOT_TO_SCALE)
        seeds = style.mean_of(len(numbers) for method in result["methods"] for numbers in method["seeds"])
        note = f"\n({seeds}, bars: 1 std)" if seeds else ""
        axis.set(xlabel=f"{result['parameter']}{note}", ylabel=style.axis_of(metric))
        axis.grid(alpha=0.3)
        style.legend(axis)
    return figure
