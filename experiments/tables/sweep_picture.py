"""The picture of a sweep: a line over one axis, a heat map over two, ranked bars over more."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedwin.analysis import Interval

from ..cli import config_flags
from ..figures import style
from . import grid

# Bars in one picture; the table has all.
MOST_BARS = 40
# A numeric axis that spans more has a logarithmic scale.
LOGARITHMIC_FROM = 8.0
GREY = "0.85"
PERCENT = 100
# Colour maps that grow evenly in brightness for every reader; bright is good.
LARGER_IS_BETTER, SMALLER_IS_BETTER = "cividis", "cividis_r"
# Sum of red, green and blue from which black is easier to read than white.
BRIGHT = 1.5
INTERVAL = ", bars: 95 % interval (Student's t)"

# The values of a point, as they are shown -> the number that its run is ranked by.
Results = Mapping[tuple[str, ...], Interval]


class Scale(NamedTuple):
    """How the number that runs are ranked by is written.

    Attributes:
      name: with its unit, on axes.
      factor: what it is multiplied with.
      digits: its decimals.
      smaller: whether smaller is better.
    """

    name: str
    factor: float
    digits: int
    smaller: bool

    @property
    def percent(self) -> bool:
        """Whether the number is a percentage."""
        return self.factor == PERCENT


def draw(
    axes: grid.Axes, found: Mapping[str, Interval], ranked: Sequence[str], scale: Scale, path: pathlib.Path
) -> None:
    """Draws a finished grid to a PNG.

    Args:
      axes: field -> values.
      found: label -> the number that its run is ranked by.
      ranked: labels from best to worst; runs that diverged are not among them.
      scale: how that number is written.
      path: where it goes.
    """
    # An axis of one value is no axis of the picture.
    wide = {field: values for field, values in axes.items() if len(values) > 1} or dict(list(axes.items())[:1])
    values_of = {
        grid.label(point): tuple(grid.format_value(point[field]) for field in wide) for point in grid.points(axes)
    }  # fmt: skip
    seen = {values: _scaled(found[label], scale.factor) for label, values in values_of.items()}
    order = [values_of[label] for label in ranked]
    kind = {1: _line, 2: _heat_map}.get(len(wide), _bars)
    style.save(kind(wide, seen, order, scale), path)


def _scaled(found: Interval, factor: float) -> Interval:
    times = lambda value: None if value is None else factor * value
    return found._replace(mean=times(found.mean), half_width=times(found.half_width))


def _title(figure, seen: Results, order: Sequence[tuple[str, ...]], scale: Scale, more: str = "") -> None:
    seeds = max(found.of_seeds for found in seen.values())
    over = f"mean over {seeds} seeds{more}" if seeds > 1 else "one seed"
    best = f"best: {style.short(', '.join(order[0]))}" if order else "every run diverged"
    figure.suptitle(f"{scale.name}, {over}; {best}", fontsize="medium")


def _numeric(values: Sequence[Any]) -> bool:
    return all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)


def _line(axes: grid.Axes, seen: Results, order: Sequence[tuple[str, ...]], scale: Scale):
    field, values = next(iter(axes.items()))
    figure, axis = style.subplots(figsize=(7.5, 4.6))
    numeric = _numeric(values)
    values = sorted(values) if numeric else list(values)
    place: dict[tuple[str, ...], Any] = {
        (grid.format_value(value),): value if numeric else number for number, value in enumerate(values)
    }
    kept = [(place[value], seen[value]) for value in place if seen[value].mean is not None]
    look: dict[str, Any] = dict(color=style.colour(0), marker=style.marker(0), capsize=3)
    look["linestyle"] = "-" if numeric else ""
    axis.errorbar([x for x, _ in kept], [f.mean for _, f in kept], [f.half_width or 0 for _, f in kept], **look)
    # Unseen, so that what diverged has room, too.
    axis.plot(list(place.values()), [kept[0][1].mean if kept else 0] * len(place), alpha=0)
    if order:
        best = dict(color=style.colour(1), markersize=15, zorder=3, label="best")
        axis.plot(place[order[0]], seen[order[0]].mean, "*", **best)
        axis.legend()
    for value in place:
        if seen[value].mean is None:
            where = dict(xycoords=("data", "axes fraction"), rotation=90, ha="center", color="0.35")
            axis.annotate("diverged", (place[value], 0.03), **where)
    if numeric and values[0] > 0 and values[-1] / values[0] >= LOGARITHMIC_FROM:
        axis.set_xscale("log")
    axis.set_xticks([], minor=True)
    axis.set_xticks(list(place.values()), [style.short(value) for (value,) in place])
    if not numeric:
        style.slant(axis)
    axis.set(xlabel=config_flags.flag_of(field), ylabel=scale.name)
    axis.grid(alpha=0.3)
    if scale.percent:
        style.within_percent(axis, "y")
    _title(figure, seen, order, scale, INTERVAL)
    return figure


def _heat_map(axes: grid.Axes, seen: Results, order: Sequence[tuple[str, ...]], scale: Scale):
    (down, rows), (across, cells) = axes.items()
    left, below = [grid.format_value(value) for value in rows], [grid.format_value(value) for value in cells]
    values = np.array([[_or_nan(seen[row, cell].mean) for cell in below] for row in left])
    size = (min(4.5 + 0.95 * len(cells), 16.0), min(2.2 + 0.55 * len(rows), 12.0))
    figure, axis = style.subplots(figsize=size)
    colours = style.colour_map(SMALLER_IS_BETTER if scale.smaller else LARGER_IS_BETTER, GREY)
    image = axis.imshow(np.ma.masked_invalid(values), cmap=colours, aspect="auto")
    for (y, x), value in np.ndenumerate(values):
        there = bool(np.isfinite(value))
        dark = there and sum(colours(image.norm(value))[:3]) < BRIGHT
        told = f"{value:.{scale.digits}f}" if there else "diverged"
        axis.text(x, y, told, ha="center", va="center", fontsize=8, color="white" if dark else "black")
    if order:
        style.outline(axis, (below.index(order[0][1]), left.index(order[0][0])), style.colour(1))
    axis.set_xticks(range(len(cells)), map(style.short, below))
    if not _numeric(cells):
        style.slant(axis)
    axis.set_yticks(range(len(rows)), map(style.short, left))
    axis.set(xlabel=config_flags.flag_of(across), ylabel=config_flags.flag_of(down))
    figure.colorbar(image, ax=axis, label=scale.name)
    _title(figure, seen, order, scale)
    return figure


def _or_nan(value: float | None) -> float:
    return float("nan") if value is None else value


def _bars(axes: grid.Axes, seen: Results, order: Sequence[tuple[str, ...]], scale: Scale):
    shown = order[:MOST_BARS]
    figure, axis = style.subplots(figsize=(9.5, 2.0 + 0.26 * max(len(shown), 4)))
    for place, values in enumerate(shown):
        mean, half = _or_nan(seen[values].mean), seen[values].half_width
        axis.barh(place, mean, xerr=half, color=style.colour(0 if place else 1), capsize=2)
        axis.text(mean + (half or 0), place, f" {mean:.{scale.digits}f}", va="center", fontsize=8)
    axis.set_yticks(range(len(shown)), [style.short(", ".join(values)) for values in shown])
    axis.set(xlabel=scale.name, ylabel=", ".join(map(config_flags.flag_of, axes)))
    axis.set_ylim(max(len(shown), 1) - 0.4, -0.6)
    axis.margins(x=0.1)
    if scale.percent:
        style.within_percent(axis, "x")
    axis.grid(alpha=0.3, axis="x")
    axis.set_axisbelow(True)
    some = f"; {len(shown)} of {len(seen)} runs" if len(shown) < len(seen) else ""
    _title(figure, seen, order, scale, f"{INTERVAL}{some}")
    return figure
