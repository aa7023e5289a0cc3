"""Pictures of tables, curves and sweeps, drawn from stored curves."""

import pathlib
from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

import numpy as np

from fedwin.registry import parse

from ..figures import curves as curve_figure
from ..figures import style, sweeps
from ..papers.items import Cell, Item, Variation, file_stem
from ..papers.measures import NATS, Curve, MeanLast, MeanLoss
from .store import ResultStore, curves
from .tune import best_point
from .values import Value
from .verdicts import CHANCE_FACTOR, CLASSES, near_chance

# Most panels in a row; inches of one, and of all in a row.
ACROSS, PANEL_WIDTH, PAGE_WIDTH = 7, 3.1, 12.4
# Marks of printed numbers.
PRINTED: dict[str, Any] = {
    "linestyle": "none",
    "marker": "|",
    "color": "black",
    "markersize": 9,
    "markeredgewidth": 1.5,
}
# Names of data sets in titles; others are named as on the command line.
DATA = {"fmnist": "Fashion-MNIST", "cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "mnist_writers": "MNIST by writers"}
# More rows than this are drawn closer together.
MANY_ROWS = 16
# Share of the rounds that is left out when the lower end of an accuracy axis is chosen: all methods rise steeply there.
STEEP = 0.2


def titled(item: Item, scale: str, more: str = "") -> str:
    """Returns the line above a picture: item, scale and what a panel shows."""
    title = f"{item.name}, {scale}"
    return f"{title}: {more}" if more else title


def data_title(item: Item, scale: str, cell: Cell, title: str = "") -> str:
    """Returns the title of a panel; below paper scale it names the data that was used, and what it stands in for.

    Args:
      item: the table or figure.
      scale: smoke, trend or paper.
      cell: one of the panel.
      title: of the panel at paper scale; empty: that of the cell's column.
    """
    title = title or cell.column.title
    if scale == "paper" or item.paired:
        return title
    choice, wanted = parse(cell.runs[0].config().dataset), _paper_data(item, cell)
    used, size = choice.name, choice.params.get("size")
    if wanted == "" or (wanted == used and size is None):
        return title if title not in DATA else DATA[title]
    used, wanted = DATA.get(used, used), DATA.get(wanted, wanted)
    used = used if size is None else f"{used} at {size}x{size}"
    alone = title in (wanted, _paper_data(item, cell))
    # A title names the data set of the paper, or what else the panel shows of it.
    named = alone or wanted.lower() in title.lower() or wanted not in DATA.values()
    return f"{used} (for {wanted if alone else title})" if named else f"{used} (for {wanted}), {title}"


def _paper_data(item: Item, cell: Cell) -> str:
    """Returns the name of the data set of a cell at paper scale; '' if it is not that of column, row or item."""
    variations = (cell.column, cell.row, item.base)
    named = (variation.fields("paper").get("dataset") for variation in variations)
    return str(next(filter(None, named), "")).partition(":")[0]


def _label(item: Item, cell: Cell) -> str:
    """Returns the label of a cell in a legend: its row, and its variant if there are several."""
    plain = cell.variant.name == "base" or len(item.variants) == 1
    return cell.row.title if plain else f"{cell.row.title}, {cell.variant.title}"


def _curves(store: ResultStore, cell: Cell) -> tuple[dict[int, Curve], bool]:
    """Returns seed -> curve of a cell, without diverged ones, and whether all of its seeds diverged."""
    by_seed = curves(store, cell.runs[best_point(store, cell) or 0], cell.read, cell.metric)
    found = {seed: curve for seed, curve in by_seed.items() if len(curve.rounds) and not curve.diverged}
    return found, bool(by_seed) and not found


def common_seeds(available: Iterable[Collection[int]]) -> set[int]:
    """Returns the seeds that all lines of a panel have; all seeds if they have none in common.

    Args:
      available: seeds of each line; lines without any are left out.
    """
    each = [set(seeds) for seeds in available if seeds]
    return (set.intersection(*each) or set.union(*each)) if each else set()


def _line(item: Item, cell: Cell, drawn: list[Curve], every: int) -> dict | None:
    """Returns a curve as experiments.figures.curves draws it; None if nothing has been trained."""
    if not drawn:
        return None
    common = sorted(set.intersection(*({int(r) for r in curve.rounds if r % every == 0} for curve in drawn)))
    values = [[float(curve.accuracy[np.searchsorted(curve.rounds, r)]) for r in common] for curve in drawn]
    return {"label": _label(item, cell), "rounds": common, "values": values} if common else None


def _to_scale(cell: Cell, lines: list[dict]) -> list[dict]:
    """Returns the lines that determine the limits of the axis: those that end above chance, or all if none does."""
    classes = CLASSES.get(cell.runs[0].config().dataset.partition(":")[0])
    if classes is None or not isinstance(cell.measure, MeanLast):
        return lines
    return [line for line in lines if np.array(line["values"])[:, -1].mean() >= CHANCE_FACTOR / classes] or lines


def _limits(lines: list[dict], falls: bool) -> list[float | None]:
    """Returns the limits of the axis, without the steep first rounds, rounded to 0.05.

    Args:
      lines: the curves.
      falls: whether the metric falls, as a loss does; then the upper end is limited, otherwise the lower one.
    """
    values = []
    for line in lines:
        later = np.array(line["rounds"]) >= STEEP * line["rounds"][-1]
        values.append((np.nanmax if falls else np.nanmin)(np.array(line["values"]).mean(0)[later]))
    return [None, float(np.ceil(max(values) * 20) / 20)] if falls else [float(np.floor(min(values) * 20) / 20), None]


def _is_accuracy(value: Value) -> bool:
    return isinstance(value.cell.measure, MeanLast)


def _percent(value: Value) -> int:
    """Returns the factor from an accuracy in [0, 1] to the unit of its table; 1 for other numbers."""
    return value.cell.measure.factor if isinstance(value.cell.measure, MeanLast) else 1


def draw_curves(item: Item, scale: str, store: ResultStore, path: pathlib.Path) -> list[pathlib.Path]:
    """Draws a picture per column: accuracy, or the metric of the measure, over rounds.

    Args:
      item: the figure.
      scale: smoke, trend or paper.
      store: where records are read.
      path: of the picture; of several without the column's name.

    Returns:
      Paths of the pictures.
    """
    drawn = []
    cells = item.cells(scale)
    for column in dict.fromkeys(cell.column for cell in cells):
        shown = [cell for cell in cells if cell.column == column]
        every = np.gcd.reduce([cell.runs[0].config().eval_every for cell in shown])
        with_lost = [_curves(store, cell) for cell in shown]
        by_cell = [found for found, _ in with_lost]
        seeds = common_seeds(by_cell)
        drawn_curves = [[curve for seed, curve in found.items() if seed in seeds] for found in by_cell]
        made = (_line(item, cell, each, int(every)) for cell, each in zip(shown, drawn_curves, strict=True))
        lines = [line for line in made if line is not None]
        if lines:
            metric = shown[0].measure.metric or "accuracy"
            limits = _limits(_to_scale(shown[0], lines), isinstance(shown[0].measure, MeanLoss))
            lost = [_label(item, cell) for cell, (_, all_lost) in zip(shown, with_lost, strict=True) if all_lost]
            options = {"target": None, "start": None, "limits": limits, "log": False, "lost": lost}
            own = _numbered(path, column.name if len(item.columns) > 1 else "")
            figure = {"kind": curve_figure.KIND, "metric": metric, "curves": lines, **options}
            curve_figure.draw(figure, own, titled(item, scale, data_title(item, scale, shown[0])))
            drawn.append(own)
    return drawn


def _numbered(path: pathlib.Path, part: object) -> pathlib.Path:
    """Returns the path of one of several pictures of an item; of the only one if `part` is empty."""
    return path.with_stem(f"{path.stem}_{part}") if part else path


def draw_sweep(item: Item, scale: str, numbers: list[Value], path: pathlib.Path) -> list[pathlib.Path]:
    """Draws accuracy against a parameter, a picture per group of columns.

    Args:
      item: the figure.
      scale: smoke, trend or paper.
      numbers: of its cells.
      path: of the picture; of several without the group's number.

    Returns:
      Paths of the pictures.
    """
    drawn = []
    groups = list(dict.fromkeys(value.cell.column.group for value in numbers))
    for number, group in enumerate(groups):
        methods: dict[str, dict[float, list[float]]] = {}
        lost: dict[str, list[float]] = {}
        shown: list[Value] = []
        for value in numbers:
            if value.cell.column.group != group or value.cell.column.x is None:
                continue
            label = _label(item, value.cell)
            if len(value.numbers) and not near_chance(value):
                shown.append(value)
                methods.setdefault(label, {})
            elif value.diverged or near_chance(value):
                lost.setdefault(label, []).append(value.cell.column.x)
                methods.setdefault(label, {})
        defined = [{seed: n for seed, n in value.by_seed.items() if n is not None} for value in shown]
        seeds = common_seeds(defined)
        for value, each in zip(shown, defined, strict=True):
            of_seeds = [n / _percent(value) for seed, n in each.items() if seed in seeds]
            if of_seeds and value.cell.column.x is not None:
                methods[_label(item, value.cell)][value.cell.column.x] = of_seeds
        methods = {label: points for label, points in methods.items() if points or label in lost}
        if any(methods.values()):
            own = _numbered(path, number + 1 if len(groups) > 1 else "")
            title = titled(
                item, scale, data_title(item, scale, shown[0].cell, group or _paper_data(item, shown[0].cell))
            )
            metric = "accuracy" if _is_accuracy(numbers[0]) else numbers[0].cell.measure.name
            sweeps.draw(sweeps.compute(methods, item.axis, metric, lost=lost), own, title)
            drawn.append(own)
    return drawn


def draw_table(item: Item, scale: str, numbers: list[Value], path: pathlib.Path) -> list[pathlib.Path]:
    """Draws the numbers of a table as points with bars, a panel per column, printed numbers next to ours.

    A row has the color of its method, a variant its marker. The points of a panel are means over the same seeds.

    Args:
      item: the table.
      scale: smoke, trend or paper.
      numbers: of its cells.
      path: of the picture.

    Returns:
      Paths of the pictures.
    """
    measures = {type(value.cell.measure) for value in numbers}
    losses = measures == {MeanLoss}
    shown = [v for v in numbers if (v.mean is not None or v.diverged) and (losses or _is_accuracy(v))]
    if not any(value.mean is not None for value in shown):
        return []
    columns = [column for column in item.columns if any(value.cell.column == column for value in shown)]
    rows = [row for row in item.rows if any(value.cell.row == row for value in shown)]
    variants = [variant for variant in item.variants if any(value.cell.variant == variant for value in shown)]
    height = max(2.2, (0.3 if len(rows) <= MANY_ROWS else 0.2) * len(rows) + 1.1)
    down = -(-len(columns) // ACROSS)
    across = -(-len(columns) // down)  # as even as possible: no panel is alone in a row
    size = {"width": min(PANEL_WIDTH, PAGE_WIDTH / across), "height": height}
    with style.panels(path, titled(item, scale), down, across, **size) as (figure, axes):
        for axis in axes.flat[len(columns) :]:
            axis.set_visible(False)
        lost = bars = marks = False
        for panel, (axis, column) in enumerate(zip(axes.flat, columns, strict=False)):
            values = [value for value in shown if value.cell.column == column]
            found = _panel(axis, values, rows, variants, printed=scale == "paper")
            lost, bars, marks = lost or found.lost, bars or found.bars, marks or found.marks
            axis.set_yticks(range(len(rows)), ["" if panel % across else row.title for row in rows])
            axis.set_ylim(len(rows) - 0.4, -0.6)  # the same rows at the same height in every panel
            title = style.wrapped(data_title(item, scale, values[0].cell), round(10 * size["width"]))
            seeds = "one seed" if found.seeds == 1 else f"{found.seeds} seeds"
            axis.set_title(f"{title}\n{seeds}", fontsize="small")
            axis.set_xlabel(f"test loss ({NATS})" if losses else "test accuracy (%)")
            if not losses:
                axis.set_xlim(*style.widened(*axis.get_xlim()))
            axis.locator_params(axis="x", nbins=4 if size["width"] < PANEL_WIDTH else 6)
            axis.grid(alpha=0.3, axis="x")
        names = [v.title for v in variants] if len(variants) > 1 else ["ours"] if marks else []
        handles, labels = _legend(names, marks, lost)
        note = "bars: standard deviation over seeds" if bars else None
        if labels:
            small = {"fontsize": "small", "title_fontsize": "small", "ncols": min(len(labels), 2 * across)}
            figure.legend(handles, labels, title=note, loc="outside lower center", **small)
        elif note:
            figure.supxlabel(note, fontsize="small")
    return [path]


class _Drawn(NamedTuple):
    """What a panel of a table's picture contains.

    Attributes:
      seeds: number of seeds of every point.
      bars: whether there are bars.
      marks: whether there are printed numbers.
      lost: whether some points are marked at the edge.
    """

    seeds: int
    bars: bool
    marks: bool
    lost: bool


def _panel(axis, values: list[Value], rows: list[Variation], variants: list[Variation], printed: bool) -> _Drawn:
    """Draws the numbers of a column: means over the seeds that all its points have, a little apart by variant."""
    trained = [value for value in values if value.mean is not None and not near_chance(value)]
    trained = trained or [value for value in values if value.mean is not None]
    defined = {id(value): {seed: n for seed, n in value.by_seed.items() if n is not None} for value in trained}
    seeds = common_seeds(defined.values())
    colors = style.row_colors([row.title for row in rows])
    count, bars, marks, at_edge = len(variants), False, False, []
    for value in values:
        index, row = variants.index(value.cell.variant), rows.index(value.cell.row)
        place = row + (0.5 * (index / (count - 1) - 0.5) if count > 1 else 0.0)
        if id(value) not in defined:
            at_edge.append((place, colors[row]))
            continue
        factor = 100 / _percent(value) if _is_accuracy(value) else 1
        each = factor * np.array([n for seed, n in defined[id(value)].items() if seed in seeds])
        std = float(each.std(ddof=1)) if len(each) > 1 else None
        look = style.variant_look(index, count) | {
            "color": colors[row],
            "markersize": 4,
            "linewidth": 1,
            "clip_on": False,
        }
        axis.errorbar(each.mean(), place, xerr=std, linestyle="none", **look)
        bars = bars or std is not None
        if printed and value.cell.printed is not None and value.cell.printed.number is not None:
            axis.plot(factor * value.cell.printed.number, place, **PRINTED)
            marks = True
    for place, color in at_edge:
        axis.plot(0, place, transform=axis.get_yaxis_transform(), color=color, **style.LOST)
    fewest = min((len(each.keys() & seeds) for each in defined.values()), default=0)
    return _Drawn(fewest, bars, marks, bool(at_edge))


def _legend(names: list[str], marks: bool, lost: bool) -> tuple[list[Any], list[str]]:
    """Returns the legend of a table's picture: a marker per variant, printed numbers, and what is not to scale."""
    from matplotlib.lines import Line2D

    handles, labels = style.variant_handles(names), list(names)
    if marks:
        handles, labels = [*handles, Line2D([], [], **PRINTED)], [*labels, "printed in the paper"]
    if lost:
        handles = [*handles, Line2D([], [], **style.LOST, color=style.NEUTRAL)]
        labels = [*labels, style.NOT_TO_SCALE]
    return handles, labels


def draw(
    item: Item,
    scale: str,
    store: ResultStore,
    numbers: list[Value],
    folder: pathlib.Path,
    form: str = "png",
) -> list[pathlib.Path]:
    """Draws the pictures of a table or figure into a folder.

    Args:
      item: the table or figure.
      scale: smoke, trend or paper.
      store: where records are read.
      numbers: of its cells.
      folder: of the pictures.
      form: their format.

    Returns:
      Paths of the pictures.
    """
    path = folder / f"{file_stem(item)}.{form}"
    if item.draw == "curves":
        return draw_curves(item, scale, store, path)
    if item.draw == "sweep":
        return draw_sweep(item, scale, numbers, path)
    return draw_table(item, scale, numbers, path)
