"""Picture of a sweep: a line for one axis, a heat map for two, ranked bars for more; a search by parameter."""

import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedwin.analysis import Interval
from fedwin.callbacks import scores

from ..cli import config_flags
from ..figures import style
from . import formats, grid

# Most bars; the table has all runs.
MOST_BARS = 40
# Ratio of the largest to the smallest value from which a numeric axis is logarithmic.
LOGARITHMIC_FROM = 8.0
GREY = "0.85"
# Perceptually uniform color maps, even for color-blind readers; bright is good.
LARGER_IS_BETTER, SMALLER_IS_BETTER = "cividis", "cividis_r"
# Sum of red, green and blue from which text is black.
BRIGHT = 1.5
INTERVAL = ", bars: 95 % interval (Student's t)"

# The formatted values of a point -> the metric that its run is ranked by.
Results = Mapping[tuple[str, ...], Interval]


class Scale(NamedTuple):
    """How the metric that runs are ranked by is written: axis label with the unit; `smaller` is better for losses."""

    name: str
    factor: float
    digits: int
    smaller: bool


def draw(
    axes: grid.Axes, intervals: Mapping[str, Interval], ranked: Sequence[str], scale: Scale, path: pathlib.Path
) -> None:
    """Draws a grid to a PNG; one of which runs have failed as bars.

    Args:
      intervals: label -> the metric that its run is ranked by.
      ranked: labels from best to worst, without diverged runs.
    """
    # Axes with a single value are not drawn.
    drawn_axes = {field: values for field, values in axes.items() if len(values) > 1} or dict(list(axes.items())[:1])
    values_of = {
        grid.label(point): tuple(grid.format_value(point[field]) for field in drawn_axes)
        for point in grid.points(axes) if grid.label(point) in intervals
    }  # fmt: skip
    scaled = lambda value: None if value is None else scale.factor * value
    shown = {values: formats.shown(intervals[label]) for label, values in values_of.items()}
    results = {
        values: each._replace(mean=scaled(each.mean), half_width=scaled(each.half_width))
        for values, each in shown.items()
    }
    order = [values_of[label] for label in ranked]
    complete = len(values_of) == len(grid.points(axes))
    kind = {1: _line, 2: _heat_map}.get(len(drawn_axes) * complete, _bars)
    style.save(kind(drawn_axes, results, order, scale), path)


def _title(
    figure, results: Results, order: Sequence[tuple[str, ...]], scale: Scale, bars: bool = False, more: str = ""
) -> None:
    seeds = max(interval.of_seeds for interval in results.values())
    over = f"mean over {seeds} seeds" if seeds > 1 else "one seed"
    if bars and any(interval.half_width is not None for interval in results.values()):
        over += INTERVAL
    over += more
    best = f"best: {style.short([', '.join(values) for values in order])[0]}" if order else "every run diverged"
    figure.suptitle(f"{scale.name}, {over}; {best}", fontsize="medium")


def _numeric(values: Sequence[Any]) -> bool:
    return all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)


def _line(axes: grid.Axes, results: Results, order: Sequence[tuple[str, ...]], scale: Scale):
    field, values = next(iter(axes.items()))
    figure, axis = style.subplots(figsize=(7.5, 4.6))
    numeric = _numeric(values)
    values = sorted(values) if numeric else list(values)
    place: dict[tuple[str, ...], Any] = {
        (grid.format_value(value),): value if numeric else number for number, value in enumerate(values)
    }
    converged = [(place[value], results[value]) for value in place if results[value].mean is not None]
    look: dict[str, Any] = dict(color=style.NEUTRAL, marker=style.MARKERS[0], linestyle="-" if numeric else "")
    bars = [each.half_width or 0 for _, each in converged]
    axis.errorbar([x for x, _ in converged], [each.mean for _, each in converged], bars, capsize=3, **look)
    # Invisible points extend the axis to the values of diverged runs.
    axis.plot(list(place.values()), [converged[0][1].mean if converged else 0] * len(place), alpha=0)
    if order:
        best = dict(color=style.BEST, markersize=15, zorder=3, label="best")
        axis.plot(place[order[0]], results[order[0]].mean, "*", **best)
        axis.legend()
    for value in place:
        if results[value].mean is None:
            where = dict(xycoords=("data", "axes fraction"), rotation=90, ha="center", color="0.35")
            axis.annotate("diverged", (place[value], 0.03), **where)
    positive = [value for value in values if numeric and value > 0]
    if positive and values[0] >= 0 and positive[-1] / positive[0] >= LOGARITHMIC_FROM:
        axis.set_xscale("symlog", linthresh=positive[0], linscale=0.5)  # linear from 0 to the smallest other value
    axis.set_xticks([], minor=True)
    axis.set_xticks(list(place.values()), style.short([value for (value,) in place]))
    if not numeric:
        style.slant(axis)
    axis.set(xlabel=config_flags.flag_of(field), ylabel=scale.name)
    axis.grid(alpha=0.3)
    if not scale.smaller:
        style.within_percent(axis, "y")
    _title(figure, results, order, scale, bars=True)
    return figure


def _heat_map(axes: grid.Axes, results: Results, order: Sequence[tuple[str, ...]], scale: Scale):
    from matplotlib import colormaps
    from matplotlib.patches import Rectangle

    (down, rows), (across, cells) = axes.items()
    left, below = [grid.format_value(value) for value in rows], [grid.format_value(value) for value in cells]
    values = np.array([[results[row, cell].mean for cell in below] for row in left], float)  # None: NaN
    size = (min(4.5 + 0.95 * len(cells), 16.0), min(2.2 + 0.55 * len(rows), 12.0))
    figure, axis = style.subplots(figsize=size)
    colors = colormaps[SMALLER_IS_BETTER if scale.smaller else LARGER_IS_BETTER].with_extremes(bad=GREY)
    image = axis.imshow(np.ma.masked_invalid(values), cmap=colors, aspect="auto")
    for (y, x), value in np.ndenumerate(values):
        finite = bool(np.isfinite(value))
        dark = finite and sum(colors(image.norm(value))[:3]) < BRIGHT
        text = f"{value:.{scale.digits}f}" if finite else "diverged"
        axis.text(x, y, text, ha="center", va="center", fontsize=8, color="white" if dark else "black")
    if order:
        corner = below.index(order[0][1]) - 0.48, left.index(order[0][0]) - 0.48
        axis.add_patch(Rectangle(corner, 0.96, 0.96, fill=False, edgecolor=style.BEST, linewidth=3))
    axis.set_xticks(range(len(cells)), style.short(below))
    if not _numeric(cells):
        style.slant(axis)
    axis.set_yticks(range(len(rows)), style.short(left))
    axis.set(xlabel=config_flags.flag_of(across), ylabel=config_flags.flag_of(down))
    figure.colorbar(image, ax=axis, label=scale.name)
    _title(figure, results, order, scale)
    return figure


def _bars(axes: grid.Axes, results: Results, order: Sequence[tuple[str, ...]], scale: Scale):
    shown = order[:MOST_BARS]
    figure, axis = style.subplots(figsize=(9.5, 2.0 + 0.26 * max(len(shown), 4)))
    labels = [", ".join(values) for values in shown]
    for place, (values, color) in enumerate(zip(shown, style.row_colors(labels), strict=True)):
        mean, half = results[values].mean or 0.0, results[values].half_width
        frame = {} if place else {"edgecolor": style.BEST, "linewidth": 2}
        axis.barh(place, mean, xerr=half, color=color, capsize=2, **frame)
        axis.text(mean + (half or 0), place, f" {mean:.{scale.digits}f}", va="center", fontsize=8)
    axis.set_yticks(range(len(shown)), style.short(labels))
    axis.set(xlabel=scale.name, ylabel=", ".join(map(config_flags.flag_of, axes)))
    axis.set_ylim(max(len(shown), 1) - 0.4, -0.6)
    axis.margins(x=0.1)
    axis.spines["right"].set_visible(False)  # numbers may be there
    if not scale.smaller:
        style.within_percent(axis, "x")
    axis.grid(alpha=0.3, axis="x")
    axis.set_axisbelow(True)
    some = f"; {len(shown)} of {len(results)} runs" if len(shown) < len(results) else ""
    _title(figure, results, order, scale, bars=True, more=some)
    return figure


# Panels of a search beside each other.
COLUMNS = 3


def draw_search(
    trials: Mapping[str, Any],
    intervals: Mapping[str, Interval],
    ranked: Sequence[str],
    scale: Scale,
    path: pathlib.Path,
) -> None:
    """Draws the metric of every trial of a finished search against each parameter that was drawn.

    Args:
      trials: label -> optuna.trial.FrozenTrial.
      ranked: labels from best to worst, without diverged and pruned runs.
    """
    distributions = {name: d for trial in trials.values() for name, d in trial.distributions.items()}
    columns = min(len(distributions), COLUMNS)
    rows = -(-len(distributions) // columns)
    figure, axes = style.subplots(rows, columns, figsize=(4.2 * columns + 1, 3.6 * rows + 0.8), squeeze=False)
    means = {label: scale.factor * each.mean for label, each in intervals.items() if each.mean is not None}
    pruned = [label for label in means if label not in ranked]
    looks: tuple[tuple[str, Sequence[str], dict[str, Any]], ...] = (
        ("finished", ranked, dict(color=style.NEUTRAL, marker="o")),
        ("pruned", pruned, dict(color=style.NEUTRAL, marker="o", fillstyle="none", alpha=0.6)),
        ("best", ranked[:1], dict(color=style.BEST, marker="*", markersize=15, zorder=3)),
    )
    for panel, (name, distribution) in zip(axes.flat, distributions.items()):
        place = {label: trial.params[name] for label, trial in trials.items() if name in trial.params}
        for kind, labels, look in looks:
            shown = [label for label in labels if label in place]
            panel.plot([place[l] for l in shown], [means[l] for l in shown], linestyle="", label=kind, **look)
        if lost := [value for label, value in place.items() if label in intervals and label not in means]:
            style.mark_lost(panel, lost, style.NEUTRAL, "diverged")
        if hasattr(distribution, "choices"):
            panel.set_xticks(panel.get_xticks(), style.short([tick.get_text() for tick in panel.get_xticklabels()]))
            panel.margins(x=0.25)
            style.slant(panel)
        elif distribution.log:
            panel.set_xscale("log", subs=[2, 5])  # labels of more ticks would overlap
            panel.xaxis.set_major_formatter("{x:g}")
            panel.xaxis.set_minor_formatter("{x:g}" if max(place.values()) < 100 * min(place.values()) else "")
        panel.grid(alpha=0.3)
        panel.set(xlabel=_parameter(name), ylabel=scale.name)
        if not scale.smaller:
            style.within_percent(panel, "y")
    for panel in axes.flat[len(distributions) :]:
        panel.set_visible(False)
    handles, labels = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    diverged = len(intervals) - len(means)
    title = f"{scale.name}; {len(trials)} trials, {len(pruned)} pruned" + (f", {diverged} diverged" if diverged else "")
    if ranked:
        title += f"\nbest: {style.short(ranked)[0]}: {scores.number(means[ranked[0]], scale.digits)}"
    figure.suptitle(title, fontsize="medium")
    style.save(figure, path)


def _parameter(name: str) -> str:
    """Returns the label of a search's parameter.

    >>> _parameter("algorithm=fedprox:mu={log:0.01..1}#1"), _parameter("client_lr")
    ('mu of fedprox', 'client_lr')
    """
    match = re.fullmatch(r"[^=]*=([^#]*)#(\d+)", name)
    if not match:
        return name
    before = match[1].split("{")[int(match[2]) - 1]
    return f"{re.split('[:,]', before)[-1].rstrip('=')} of {match[1].partition(':')[0]}"
