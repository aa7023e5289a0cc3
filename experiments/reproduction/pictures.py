"""The pictures of tables and figures, drawn from curves alone."""

import pathlib

import numpy as np

from ..figures import curves as curve_figure
from ..figures import style, sweeps
from ..papers.items import Cell, Item
from ..papers.measures import MeanLast
from .places import stem_of
from .shelf import Shelf, curves
from .tuning import chosen
from .values import Value

# Panels side by side.
ACROSS = 4


def titled(item: Item, scale: str, more: str = "") -> str:
    """Returns the line above a picture; below paper scale it says that other data stand in for those it names."""
    told = f"{item.name}, {scale}" + ("" if scale == "paper" or item.paired else " (stand-ins for the data named)")
    return f"{told}: {more}" if more else told


def _label(item: Item, cell: Cell) -> str:
    """Returns what a legend calls a cell: its row, and its variant where there are several."""
    plain = cell.variant.name == "base" or len(item.variants) == 1
    return cell.row.title if plain else f"{cell.row.title}, {cell.variant.title}"


def _line(item: Item, shelf: Shelf, cell: Cell, every: int) -> dict | None:
    """Returns a curve as experiments.figures.curves draws it; None where nothing has been trained."""
    found = [
        c
        for c in curves(shelf, cell.runs[chosen(shelf, cell) or 0], cell.read, cell.metric).values()
        if len(c.rounds) and not c.diverged
    ]
    if not found:
        return None
    common = sorted(set.intersection(*({int(r) for r in curve.rounds if r % every == 0} for curve in found)))
    values = [[float(curve.accuracy[np.searchsorted(curve.rounds, r)]) for r in common] for curve in found]
    return {"label": _label(item, cell), "rounds": common, "values": values} if common else None


def _is_accuracy(value: Value) -> bool:
    return isinstance(value.cell.measure, MeanLast)


def _percent(value: Value) -> int:
    """Returns what an accuracy is multiplied by to be what its table shows; 1 for other numbers."""
    return value.cell.measure.factor if isinstance(value.cell.measure, MeanLast) else 1


def draw_curves(item: Item, scale: str, shelf: Shelf, stem: pathlib.Path) -> list[pathlib.Path]:
    """Draws a picture per column: accuracy over rounds.

    Args:
      item: whose cells.
      scale: smoke, trend or paper.
      shelf: where records are.
      stem: path of the pictures without what tells columns apart.
    """
    drawn = []
    cells = item.cells(scale)
    for column in dict.fromkeys(cell.column for cell in cells):
        mine = [cell for cell in cells if cell.column == column]
        every = np.gcd.reduce([cell.runs[0].config().eval_every for cell in mine])
        lines = [line for cell in mine if (line := _line(item, shelf, cell, int(every))) is not None]
        if lines:
            options = {"target": None, "start": None, "limits": None, "log": False}
            path = stem.with_name(f"{stem.name}_{column.name}.png" if len(item.columns) > 1 else f"{stem.name}.png")
            found = {"kind": curve_figure.KIND, "metric": "accuracy", "curves": lines, **options}
            curve_figure.draw(found, path, titled(item, scale, column.title))
            drawn.append(path)
    return drawn


def draw_sweep(item: Item, scale: str, found: list[Value], stem: pathlib.Path) -> list[pathlib.Path]:
    """Draws accuracy against a parameter, a picture per group of columns.

    Args:
      item: whose cells.
      scale: smoke, trend or paper.
      found: its numbers.
      stem: path of the pictures without what tells groups apart.
    """
    drawn = []
    groups = list(dict.fromkeys(value.cell.column.group for value in found))
    for number, group in enumerate(groups):
        methods: dict[str, dict[float, list[float]]] = {}
        for value in found:
            cell = value.cell
            if cell.column.group == group and cell.column.x is not None and len(value.numbers):
                label = _label(item, cell)
                methods.setdefault(label, {})[cell.column.x] = list(value.numbers / _percent(value))
        if methods:
            path = stem.with_name(f"{stem.name}_{number + 1}.png" if len(groups) > 1 else f"{stem.name}.png")
            title = titled(item, scale, group)
            metric = "accuracy" if _is_accuracy(found[0]) else found[0].cell.measure.name
            sweeps.draw(sweeps.compute(methods, item.axis, metric), path, title)
            drawn.append(path)
    return drawn


def draw_table(item: Item, scale: str, found: list[Value], stem: pathlib.Path) -> list[pathlib.Path]:
    """Draws the numbers of a table as points with bars, a panel per column, printed numbers beside ours.

    Args:
      item: whose cells.
      scale: smoke, trend or paper.
      found: its numbers.
      stem: path of the picture without its ending.
    """
    shown = [value for value in found if value.mean is not None and _is_accuracy(value)]
    if not shown:
        return []
    columns = [column for column in item.columns if any(value.cell.column == column for value in shown)]
    rows = [row for row in item.rows if any(value.cell.row == row for value in shown)]
    variants = [variant for variant in item.variants if any(value.cell.variant == variant for value in shown)]
    height = max(2.2, 0.3 * len(rows) + 1.1)
    across = min(len(columns), ACROSS)
    down = -(-len(columns) // across)
    path = stem.with_name(f"{stem.name}.png")
    with style.panels(path, titled(item, scale), down, across, width=3.1, height=height) as (figure, axes):
        for axis in axes.flat[len(columns) :]:
            axis.set_visible(False)
        for place, (axis, column) in enumerate(zip(axes.flat, columns, strict=False)):
            for number, variant in enumerate(variants):
                mine = [v for v in shown if v.cell.column == column and v.cell.variant == variant]
                label = variant.title if len(variants) > 1 else "ours"
                _points(axis, mine, rows, number, len(variants), label, printed=scale == "paper")
            axis.set_yticks(range(len(rows)), ["" if place % across else row.title for row in rows])
            axis.set_ylim(len(rows) - 0.4, -0.6)  # the same rows at the same height in every panel
            axis.set_title(column.title, fontsize="small")
            axis.set_xlabel("test accuracy (%)")
            axis.set_xlim(*style.widened(*axis.get_xlim()))
            axis.grid(alpha=0.3, axis="x")
        handles, labels = axes.flat[0].get_legend_handles_labels()
        bars = "bars: standard deviation over seeds" if any(value.std for value in shown) else None
        small = {"fontsize": "small", "title_fontsize": "small"}
        figure.legend(handles, labels, title=bars, loc="outside lower center", ncols=2 * across, **small)
    return [path]


def _points(axis, found: list[Value], rows, number: int, count: int, label: str, printed: bool) -> None:
    look = style.look(number)
    shift = 0.5 * (number / max(count - 1, 1) - 0.5) if count > 1 else 0.0
    factor = [100 / _percent(value) for value in found]
    at = [rows.index(value.cell.row) + shift for value in found]
    means = [f * (value.mean or 0.0) for f, value in zip(factor, found, strict=True)]
    bars = [f * (value.std or 0.0) for f, value in zip(factor, found, strict=True)]
    axis.errorbar(means, at, xerr=bars, fmt=look["marker"], color=look["color"], label=label, markersize=4, linewidth=1)
    beside = [value.cell.printed.number if value.cell.printed else None for value in found]
    told = [(f * number, y) for f, number, y in zip(factor, beside, at, strict=True) if number is not None]
    if printed and told:
        x, y = zip(*told, strict=True)
        axis.scatter(x, y, marker="|", s=60, color=look["color"], label=f"{label}, printed")


def draw(item: Item, scale: str, shelf: Shelf, found: list[Value], folder: pathlib.Path) -> list[pathlib.Path]:
    """Draws the picture of a table or figure; returns where its parts are."""
    stem = folder / stem_of(item)
    if item.draw == "curves":
        return draw_curves(item, scale, shelf, stem)
    if item.draw == "sweep":
        return draw_sweep(item, scale, found, stem)
    return draw_table(item, scale, found, stem)
