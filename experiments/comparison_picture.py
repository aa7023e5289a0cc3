"""The picture of a comparison: accuracies and paired differences with their intervals, a line per method."""

import pathlib
from collections.abc import Sequence

from fedwin.analysis import Interval

from . import drawing
from .comparison_rows import Row

INCHES_PER_METHOD = 0.42
# Read-outs of a method stand one below the other within this share of its line.
SPREAD = 0.56


def draw(rows: Sequence[Row], path: pathlib.Path) -> None:
    """Draws the rows of a comparison to a PNG.

    Args:
      rows: read-outs of methods, methods together.
      path: where it goes.
    """
    methods = list(dict.fromkeys(row.method for row in rows))
    readouts = list(dict.fromkeys(row.readout for row in rows))
    size = (11, 2.2 + INCHES_PER_METHOD * max(len(methods), 3))
    figure, (left, right) = drawing.subplots(1, 2, figsize=size, sharey=True)
    for number, readout in enumerate(readouts):
        mine = [row for row in rows if row.readout == readout]
        offset = SPREAD * ((number + 0.5) / len(readouts) - 0.5)
        places = [methods.index(row.method) + offset for row in mine]
        _intervals(left, places, [row.accuracy for row in mine], number, "diverged", readout)
        _intervals(right, places, [row.difference for row in mine], number, "no pair")
    left.set_yticks(range(len(methods)), [drawing.short(method) for method in methods])
    left.set(xlabel="test accuracy (%)", ylabel="method", ylim=(len(methods) - 0.4, -0.6))
    right.axvline(0, color="0.4", linewidth=0.8, linestyle="--")
    right.set(xlabel=f"paired difference (percentage points)\nto the model of {_reference(rows)}")
    drawing.within_percent(left, "x")
    for axis in (left, right):
        axis.grid(alpha=0.3)
        axis.set_axisbelow(True)
    seeds = max(row.accuracy.of_seeds for row in rows)
    told = f"{seeds} seeds, bars: 95 % interval (Student's t)" if seeds > 1 else "one seed, hence no interval"
    figure.suptitle(f"Accuracy and paired differences; {told}", fontsize="medium")
    if len(readouts) > 1:
        figure.legend(loc="outside lower center", ncols=min(len(readouts), 6), title="read-out", frameon=False)
    drawing.save(figure, path)


def _reference(rows: Sequence[Row]) -> str:
    first = dict.fromkeys(row.reference for row in rows)
    return drawing.short(next(iter(first))) if len(first) == 1 else "the first method on the same data"


def _intervals(
    axis, places: Sequence[float], found: Sequence[Interval | None], number: int, missing: str, label: str = ""
) -> None:
    """Draws means as points and intervals as bars; a seed alone is a point."""
    for place, interval in zip(places, found):
        if interval is None or interval.mean is None:
            if interval is not None:
                where = dict(xycoords=("axes fraction", "data"), va="center", fontsize=8, color=drawing.colour(number))
                axis.annotate(missing, (0.02, place), **where)
            continue
        axis.errorbar(
            100 * interval.mean,
            place,
            xerr=None if interval.half_width is None else 100 * interval.half_width,
            color=drawing.colour(number),
            marker=drawing.marker(number),
            markersize=5,
            capsize=2.5,
            linewidth=1.4,
            label=label or None,
        )
        label = ""
