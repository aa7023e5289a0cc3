"""Figure of the accuracy of clients on their own examples: histograms, and all clients in ascending order."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedwin.errors import UserError
from fedwin.registry.ranges import one_of
from fedwin.runs.client_evaluations import Table

from . import style

BINS = 10


def models_of(table: Table, metric: str) -> list[str]:
    """Returns the models of a table that have a metric: 'model', 'wima50', 'model.finetune', 'model.personal' ..."""
    columns = (column.rpartition(".") for column in table)
    return [model for model, dot, name in columns if dot and name == metric and model != "tokens"]


def compute(tables: Mapping[str, Table], metric: str = "accuracy", models: Sequence[str] = ()) -> dict[str, Any]:
    """Returns the values of all clients in ascending order, per run and model, and of unseen clients separately.

    Args:
      tables: label of a run -> table, as `fedwin.client_table` returns it.
      models: which, from the runs that have them; empty: all.

    Raises:
      UserError: no run has such a metric or model.
    """
    available = {label: models_of(table, metric) for label, table in tables.items()}
    known = dict.fromkeys(model for names in available.values() for model in names)
    if not known:
        columns = (column.rpartition(".") for table in tables.values() for column in table)
        metrics = dict.fromkeys(name for model, dot, name in columns if dot and model != "tokens")
        raise UserError(f"clients: no run has the metric '{metric}'. Available: {', '.join(metrics) or 'none'}.")
    for model in models:
        one_of("readouts", model, known)
    curves = []
    for label, table in tables.items():
        for model in (model for model in available[label] if not models or model in models):
            name = label if len(models) == 1 else model if len(tables) == 1 else f"{label}: {model}"
            for seen in (True, False):
                values = table[f"{model}.{metric}"][table["seen"] == seen].astype(float)
                values = np.sort(values[np.isfinite(values)])
                if len(values):
                    curve = {"label": name, "seen": seen, "values": style.plain(values)}
                    curves.append(curve | {"mean": float(values.mean())})
    if not curves:
        raise UserError(f"clients: no client has a finite {metric}; the runs diverged.")
    return {"kind": "clients", "metric": metric, "curves": curves}


def draw(result: dict[str, Any], path: str | pathlib.Path | None, title: str):
    """Draws histograms on the left, and the clients' values in ascending order on the right; unseen ones are dashed."""
    metric, curves = result["metric"], result["curves"]
    scaled = [style.scaled(metric, curve["values"]) for curve in curves]
    labels = list(dict.fromkeys(curve["label"] for curve in curves))
    short = dict(zip(labels, style.short(labels), strict=True))
    colors = {label: look["color"] for label, look in zip(labels, style.looks(labels), strict=True)}
    if len(set(colors.values())) < len(labels):  # nothing but colors distinguishes these lines
        palette = (*style.VARIATIONS, *style.COLORS)
        colors = {label: style.look(number, palette)["color"] for number, label in enumerate(labels)}
    looks = [colors[curve["label"]] for curve in curves]
    axis_name = style.axis_of(metric, "")
    with style.panels(path, title, 1, 2, height=style.HEIGHT + 0.22 * -(-len(curves) // 2)) as (figure, grid):
        histogram, ranks = grid[0]
        shares = [np.full(len(values), style.PERCENT / len(values)) for values in scaled]
        _, _, bars = histogram.hist(scaled, _bins(metric, scaled), weights=shares, color=looks)
        for curve, group in zip(curves, bars if len(curves) > 1 else [bars], strict=True):
            for bar in group if not curve["seen"] else ():
                bar.set(fill=False, edgecolor=bar.get_facecolor(), linestyle="--")
        for curve, values, color in zip(curves, scaled, looks, strict=True):
            who = f"{len(values)} clients" if curve["seen"] else f"{len(values)} unseen clients"
            mean = float(style.scaled(metric, curve["mean"]))
            label = f"{short[curve['label']]}, {who}, mean {mean:.{1 if style.is_share(metric) else 3}f}"
            rank = (np.arange(len(values)) + 0.5) * style.PERCENT / len(values)
            dash = "-" if curve["seen"] else "--"
            ranks.plot(rank, values, dash, color=color, linewidth=1.4, drawstyle="steps-mid", label=label)
        histogram.set(xlabel=axis_name, ylabel="clients (%)")
        ranks.set(xlabel="clients in ascending order (%)", ylabel=axis_name, xlim=(0, style.PERCENT))
        for axis in (histogram, ranks):
            axis.grid(alpha=0.3)
        figure.legend(handles=ranks.get_lines(), loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    return figure


def _bins(metric: str, scaled: Sequence[np.ndarray]) -> np.ndarray:
    """Returns the bounds of the histogram's bins; shares end at 100 %, in bins of a whole number of percent."""
    low, high = min(values[0] for values in scaled), max(values[-1] for values in scaled)
    if style.is_share(metric):
        width = np.ceil(max(style.PERCENT - low, BINS) / BINS)
        return np.arange(style.PERCENT - BINS * width, style.PERCENT + width / 2, width)
    return np.linspace(low, high if high > low else low + 1, BINS + 1)
