"""Pictures of tables, curves and sweeps, from stored curves, and figures of trained models, from checkpoints."""

import functools
import pathlib
from typing import Any, NamedTuple

import numpy as np

from fedwin import data
from fedwin.runs.load import client_models

from ..figures import curves as curve_figure
from ..figures import factors, forgetting, labels, line, models, plane, probing, stored, style, sweeps
from ..papers.items import Analysis, Cell, Item, Variation, data_title, file_stem
from ..papers.measures import NATS, Curve, MeanLast, MeanLoss, RoundsTo
from ..records import Json
from .numbers import Value, common_seeds, least_trained
from .results import READINGS, Results, curves, rounded
from .runs import best_point
from .verdicts import readings

# Most panels in a row; inches of one, and of all in a row.
ACROSS, PANEL_WIDTH, PAGE_WIDTH = 7, 3.1, 12.4
# Looks of printed numbers and of ours.
PRINTED: Json = {
    "linestyle": "none", "marker": "|", "color": "black", "markersize": 9, "markeredgewidth": 1.5
}  # fmt: skip
POINT: Json = {"markersize": 4, "linewidth": 1, "clip_on": False}
# More rows than this are drawn closer together; labels longer than this make a picture wider.
MANY_ROWS, LONG_LABEL = 16, 24
# Share of the rounds that is left out when the lower end of an accuracy axis is chosen: all methods rise steeply there.
STEEP = 0.2


def _titled(item: Item, scale: str, more: str = "") -> str:
    """Returns the line above a picture: item, scale and what a panel shows."""
    return f"{item.name}, {scale}: {more}" if more else f"{item.name}, {scale}"


def _label(item: Item, cell: Cell) -> str:
    """Returns the label of a cell in a legend: its row, and its variant if there are several."""
    plain = cell.variant.name == "base" or len(item.variants) == 1
    return cell.row.title if plain else f"{cell.row.title}, {cell.variant.title}"


def _limits(cell: Cell, lines: list[Json]) -> list[float | None]:
    """Returns the limits of the axis, without the steep first rounds, rounded to 0.05: upper of losses, else lower.

    Lines of accuracies that end near chance do not count, unless all do.
    """
    if isinstance(cell.measure, MeanLast) and not cell.measure.metric:
        least = least_trained(cell.runs[0])
        lines = [drawn for drawn in lines if np.array(drawn["values"])[:, -1].mean() >= least] or lines
    falls = isinstance(cell.measure, MeanLoss)
    values = []
    for drawn in lines:
        later = np.array(drawn["rounds"]) >= STEEP * drawn["rounds"][-1]
        values.append((np.nanmax if falls else np.nanmin)(np.array(drawn["values"]).mean(0)[later]))
    return [None, float(np.ceil(max(values) * 20) / 20)] if falls else [float(np.floor(min(values) * 20) / 20), None]


def _numbered(path: pathlib.Path, part: object) -> pathlib.Path:
    """Returns the path of one of several pictures of an item; of the only one if `part` is empty."""
    return path.with_stem(f"{path.stem}_{part}") if part else path


def _draw_curves(item: Item, results: Results, path: pathlib.Path) -> list[pathlib.Path]:
    """Draws a picture per column: accuracy, or the metric of the measure, over rounds; without diverged seeds."""
    drawn, scale = [], results.scale
    cells = item.cells(scale)
    for column in dict.fromkeys(cell.column for cell in cells):
        shown = [cell for cell in cells if cell.column == column]
        every = int(np.gcd.reduce([cell.runs[0].config().eval_every for cell in shown]))
        found: list[dict[int, Curve]] = []
        lines, lost = [], []
        for cell in shown:
            by_seed = curves(results, cell.runs[best_point(results, cell) or 0], cell.read, cell.metric)
            found.append({seed: curve for seed, curve in by_seed.items() if not curve.diverged})
            lost += [_label(item, cell)] if by_seed and not found[-1] else []
        seeds = common_seeds(found)
        for cell, of_cell in zip(shown, found, strict=True):
            if not (each := [curve for seed, curve in of_cell.items() if seed in seeds]):
                continue
            rounds = sorted(set.intersection(*({int(r) for r in curve.rounds if r % every == 0} for curve in each)))
            values = [[float(curve.accuracy[np.searchsorted(curve.rounds, r)]) for r in rounds] for curve in each]
            lines += [{"label": _label(item, cell), "rounds": rounds, "values": values}] if rounds else []
        if lines:
            options = {"target": None, "limits": _limits(shown[0], lines), "log": False, "lost": lost}
            own = _numbered(path, column.name if len(item.columns) > 1 else "")
            metric = shown[0].measure.metric or "accuracy"
            figure = {"kind": "curves", "metric": metric, "curves": lines, **options}
            curve_figure.draw(figure, own, _titled(item, scale, shown[0].heading))
            drawn.append(own)
    return drawn


def _draw_sweep(item: Item, scale: str, numbers: list[Value], path: pathlib.Path) -> list[pathlib.Path]:
    """Draws accuracy against a parameter, a picture per group of columns."""
    drawn = []
    groups = list(dict.fromkeys(value.cell.column.group for value in numbers))
    for number, group in enumerate(groups):
        methods: dict[str, dict[float, list[float]]] = {}
        lost: dict[str, list[float]] = {}
        placed = [(v, v.cell.column.x) for v in numbers if v.cell.column.group == group]
        shown = [value for value, x in placed if x is not None and value.defined and not value.near_chance]
        # A seed that does not reach its target was trained: it counts for the other points.
        seeds = common_seeds(v.by_seed if isinstance(v.cell.measure, RoundsTo) else v.defined for v in shown)
        for value, x in placed:
            label = _label(item, value.cell)
            if x is not None and any(value is each for each in shown):
                of_seeds = [n / value.factor for seed, n in value.defined.items() if seed in seeds]
                methods.setdefault(label, {}).update({x: of_seeds} if of_seeds else {})
            elif x is not None and (value.diverged or value.near_chance):
                methods.setdefault(label, {})
                lost.setdefault(label, []).append(x)
        methods = {label: points for label, points in methods.items() if points or label in lost}
        if any(methods.values()):
            own = _numbered(path, number + 1 if len(groups) > 1 else "")
            cell = shown[0].cell
            data = cell.headed(group) or data_title(cell.runs[0].config().dataset)
            measure = numbers[0].cell.measure
            metric = "accuracy" if isinstance(measure, MeanLast) else measure.name
            sweeps.draw(sweeps.compute(methods, item.axis, metric, lost=lost), own, _titled(item, scale, data))
            drawn.append(own)
    return drawn


def _draw_table(item: Item, scale: str, numbers: list[Value], path: pathlib.Path) -> list[pathlib.Path]:
    """Draws the numbers of a table as points with bars, a panel per column, printed numbers next to ours.

    A row has the color of its method, a variant its marker. The points of a panel are means over the same seeds; one
    of which such a seed diverged is at the edge.
    """
    losses = {type(value.cell.measure) for value in numbers} == {MeanLoss}
    drawable = lambda value: losses or isinstance(value.cell.measure, MeanLast)
    shown = [v for v in numbers if (v.mean is not None or v.diverged) and drawable(v)]
    if not any(value.mean is not None for value in shown):
        return []
    columns = [column for column in item.columns if any(value.cell.column == column for value in shown)]
    rows = [row for row in item.rows if any(value.cell.row == row for value in shown)]
    variants = [variant for variant in item.variants if any(value.cell.variant == variant for value in shown)]
    height = max(2.2, (0.3 if len(rows) <= MANY_ROWS else 0.2) * len(rows) + 1.1)
    down = -(-len(columns) // ACROSS)
    across = -(-len(columns) // down)  # as even as possible: no panel is alone in a row
    labels = 0.08 * max(0, max(len(row.title) for row in rows) - LONG_LABEL)
    size = {"width": min(PANEL_WIDTH, PAGE_WIDTH / across) + labels / across, "height": height}
    with style.panels(path, _titled(item, scale), down, across, **size) as (figure, axes):
        for axis in axes.flat[len(columns) :]:
            axis.set_visible(False)
        panels = []
        for number, (axis, column) in enumerate(zip(axes.flat, columns, strict=False)):
            values = [value for value in shown if value.cell.column == column]
            panels.append(_draw_panel(axis, values, rows, variants, printed=scale == "paper"))
            axis.set_yticks(range(len(rows)), ["" if number % across else row.title for row in rows])
            axis.set_ylim(len(rows) - 0.4, -0.6)  # the same rows at the same height in every panel
            title = style.wrapped(values[0].cell.heading, round(10 * size["width"]))
            seeds = "one seed" if panels[-1].seeds == 1 else f"{panels[-1].seeds} seeds"
            axis.set_title(f"{title}\n{seeds}", fontsize="small")
            axis.set_xlabel(f"test loss ({NATS})" if losses else "test accuracy (%)")
            if not losses:
                axis.set_xlim(*style.widened(*axis.get_xlim()))
            axis.locator_params(axis="x", nbins=4 if size["width"] < PANEL_WIDTH else 6)
            axis.grid(alpha=0.3, axis="x")
        _draw_legend(figure, variants, panels, across)
    return [path]


class _Panel(NamedTuple):
    """A panel's number of seeds, and whether it has bars, printed numbers, and points at its edge."""

    seeds: int
    bars: bool
    marks: bool
    lost: bool


def _draw_panel(
    axis: Any, values: list[Value], rows: list[Variation], variants: list[Variation], printed: bool
) -> _Panel:
    """Draws the numbers of a column: means over the seeds that all its points have, a little apart by variant."""
    trained = [v for v in values if v.mean is not None and not v.diverged and not v.near_chance]
    trained = trained or [value for value in values if value.mean is not None]
    seeds = common_seeds(value.defined for value in trained)
    # A method that diverged with another seed has these, too.
    trained += [v for v in values if v.diverged and not v.near_chance and v.defined and seeds <= v.defined.keys()]
    colors = style.row_colors([row.title for row in rows])
    count, bars, marks, at_edge = len(variants), False, False, []
    for value in values:
        index, row = variants.index(value.cell.variant), rows.index(value.cell.row)
        place = row + (0.5 * (index / (count - 1) - 0.5) if count > 1 else 0.0)
        if not any(value is each for each in trained):
            at_edge.append((place, colors[row]))
            continue
        factor = 100 / value.factor if isinstance(value.cell.measure, MeanLast) else 1
        each = factor * np.array([n for seed, n in value.defined.items() if seed in seeds])
        std = float(each.std(ddof=1)) if len(each) > 1 else None
        look = style.variant_look(index, count) | POINT | {"color": colors[row]}
        axis.errorbar(each.mean(), place, xerr=std, linestyle="none", **look)
        bars = bars or std is not None
        if printed and value.cell.printed is not None and value.cell.printed.number is not None:
            axis.plot(factor * value.cell.printed.number, place, **PRINTED)
            marks = True
    for place, color in at_edge:
        axis.plot(0, place, transform=axis.get_yaxis_transform(), color=color, **style.LOST)
    fewest = min((len(value.defined.keys() & seeds) for value in trained), default=0)
    return _Panel(fewest, bars, marks, bool(at_edge))


def _draw_legend(figure: Any, variants: list[Variation], panels: list[_Panel], across: int) -> None:
    """Draws a table's legend: a marker per variant, printed numbers, what is not to scale, and the meaning of bars."""
    from matplotlib.lines import Line2D

    marks, lost = any(panel.marks for panel in panels), any(panel.lost for panel in panels)
    names = [variant.title for variant in variants] if len(variants) > 1 else ["ours"] if marks else []
    handles = style.variant_handles(names)
    if marks:
        handles, names = [*handles, Line2D([], [], **PRINTED)], [*names, "printed in the paper"]
    if lost:
        handles = [*handles, Line2D([], [], **style.LOST, color=style.NEUTRAL)]
        names = [*names, style.NOT_TO_SCALE]
    note = "bars: standard deviation over seeds" if any(panel.bars for panel in panels) else None
    if names:
        small = {"fontsize": "small", "title_fontsize": "small", "ncols": min(len(names), 2 * across)}
        figure.legend(handles, names, title=note, loc="outside lower center", **small)
    elif note:
        figure.supxlabel(note, fontsize="small")


def draw(
    item: Item, results: Results, numbers: list[Value], folder: pathlib.Path, form: str = "png"
) -> list[pathlib.Path]:
    """Draws the pictures of a table or figure into a folder; returns their paths."""
    path = folder / f"{file_stem(item)}.{form}"
    if item.draw == "curves":
        return _draw_curves(item, results, path)
    return (_draw_sweep if item.draw == "sweep" else _draw_table)(item, results.scale, numbers, path)


# Figures of trained models


def compute(item: Analysis, scale: str, directories: dict[int, dict[str, pathlib.Path]], data_dir: str) -> Json:
    """Returns the data of a figure of the first seed, and the numbers that claims compare of all seeds, as JSON values.

    Args:
      directories: seed -> name of a run -> directory with that seed, which is finished.

    Raises:
      UserError: a checkpoint is missing.
    """
    if item.kind == "labels":
        histograms, titles = {}, {run.name: run.title for run in item.runs}
        for name, run in item.trajectories(scale).items():
            config = run.config()
            dataset = data.load(config.dataset, data_dir)
            by_partition = labels.of_partitions(dataset, [config.partition], config.num_clients or None, 0)
            histograms[titles[name]] = by_partition[config.partition]
        return rounded(labels.compute(histograms))
    seeds = list(directories) if item.claims else list(directories)[:1]
    figures = {str(seed): _of_seed(item, scale, directories[seed], data_dir, seed) for seed in seeds}
    found = {READINGS: {seed: readings(figure) for seed, figure in figures.items()}} if item.claims else {}
    return rounded({**next(iter(figures.values())), **found})


def _of_seed(item: Analysis, scale: str, directories: dict[str, pathlib.Path], data_dir: str, seed: int) -> Json:
    """Returns the data of a figure of one seed."""
    options = dict(item.options_at(scale))
    titles = {run.name: run.title for run in item.runs}
    paths = {titles[name]: path for name, path in directories.items()}
    rounds = item.checkpoints(scale)
    if item.kind == "factors":
        return _factors(tuple(paths.items()), rounds=rounds, seed=seed, data_dir=data_dir or None, **options)
    if item.kind == "forgetting":
        return forgetting.compute(paths, round=rounds[-1], seed=seed, data_dir=data_dir or None, **options)
    shown = [(title, path, round) for title, path in paths.items() for round in rounds]
    trained = models.loaded([models.Address(str(path), round) for _, path, round in shown], seed, data_dir or None)
    variables: list[tuple[str, Any]] = []
    for (title, _, round), model in zip(shown, trained, strict=True):
        names = [title] * (len(paths) > 1) + [f"round {round}"] * (len(rounds) > 1 or len(paths) == 1)
        variables.append((", ".join(names), model.variables))
    if item.kind == "line":
        return line.compute(trained[0], dict(variables[:2]), **options)
    if clients := options.pop("clients", 0):  # the plane through models that some clients train from the first
        ids = probing.cohort(trained[0], most=clients)
        made = zip((f"client {client}" for client in ids), client_models(trained[0], ids), strict=True)
        variables = [*made, ("received model", trained[0].variables)]
    return plane.compute(trained[0], dict(variables[:3]), dict(variables[3:]), **options)


@functools.cache  # several figures show panels of the same data
def _factors(runs: tuple[tuple[str, pathlib.Path], ...], **options: Any) -> Json:
    return factors.compute(dict(runs), **options)


def draw_models(item: Analysis, scale: str, source: pathlib.Path, path: pathlib.Path) -> None:
    """Draws a figure from its stored data."""
    figure, _ = stored.read(source)
    figure.pop(READINGS, None)
    if item.shows:
        figure["panels"] = list(item.shows)
    stored.KINDS[item.kind].draw(figure, path, f"{item.name} ({scale}): {item.titled(scale)}")
