"""Common style of all figures: colors, markers, fonts, axis labels, and saving to a file in one step."""

from __future__ import annotations

import contextlib
import io
import itertools
import math
import pathlib
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedwin.callbacks.scores import WORDS, cut, is_share, title_of
from fedwin.errors import UserError, escape
from fedwin.files import replace_bytes

# Functions import matplotlib when they are called: it takes half a second, and most commands draw nothing.
if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Colors of methods: Okabe and Ito's palette without its yellow, which is too pale for lines on white, and three more.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C564B", "#7F7F7F", "#7B5FC4")
# Colors of lines that are not methods, such as windows of one method: none of those above.
VARIATIONS = ("#882255", "#44AA99", "#999933", "#332288", "#DD7788", "#117733", "#AA6611")
# Bars and points whose color has no meaning.
NEUTRAL = "0.35"
# The best run of a sweep.
BEST = VARIATIONS[0]
# Shapes distinguish what colors alone do not, such as in print.
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
# Of tables' pictures; of figures: DPI.
DEFAULT_DPI = 130
# Characters of an axis label.
LONGEST = 44
DASHES: tuple[Any, ...] = (
    "-", (0, (5, 2)), "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (2, 1)), (0, (9, 2)), (0, (9, 2, 2, 2)),
)  # fmt: skip
# Tol's 'muted' palette; more classes are steps of viridis.
CLASSES = (
    "#332288", "#88CCEE", "#44AA99", "#117733", "#999933", "#DDCC77", "#CC6677", "#882255", "#AA4499", "#BBBBBB",
)  # fmt: skip
# Inches of one panel, the width of a page's column; printed at that size, letters have 8 points.
WIDTH, HEIGHT = 4.4, 3.2
DPI = 160
# Smallest range of an accuracy axis, in percentage points.
LEAST_SPAN = 2.0
# Most lines of a legend inside the axes.
INSIDE = 4
# Fonts and lines of panels.
STYLE = pathlib.Path(__file__).parent / "panels.mplstyle"
# Embedded fonts, and equal bytes for equal pictures.
FILES: Any = {"pdf.fonttype": 42, "svg.fonttype": "path", "svg.hashsalt": "fedwin"}
# Format of a picture -> the part of its metadata that is the time of writing.
DATED = {"pdf": "CreationDate", "svg": "Date"}
# Fractions are drawn in percent.
PERCENT = 100
# Points at the edge of the axes, and their text in a legend.
LOST: Any = {"linestyle": "none", "marker": "x", "markersize": 7, "markeredgewidth": 1.8, "clip_on": False, "zorder": 4}
NOT_TO_SCALE = "diverged, or near chance: not to scale"


def short(labels: Sequence[str]) -> list[str]:
    """Returns labels of at most LONGEST characters, with `...` in longer ones."""
    return cut(labels, LONGEST)


def look(number: int, colors: Sequence[str] = COLORS) -> dict[str, Any]:
    """Returns color, dash and marker of the n-th line; a repeated color has another dash and marker."""
    repetition = number // len(colors)
    return {
        "color": colors[number % len(colors)],
        "linestyle": DASHES[(number + repetition) % len(DASHES)],
        "marker": MARKERS[(number + 3 * repetition) % len(MARKERS)],
    }


# Methods in the order of their looks, which are the same in all figures; names as a label's first word or two, without
# spaces and punctuation. Names that are joined by '=' are the same method.
METHODS = (
    "fedavg fedhbm scaffold feddyn mimemom=mimesgdm=mimemomentum fedavgm localghb mime=mimesgd "
    "mimelite=mimelitemom ghb fedgma adabest fedcm fedadc fedacg fedadam fedyogi fednova fedprox fedasam fedfa"
).split()
_PLACES = {name: place for place, names in enumerate(METHODS) for name in names.split("=")}


def place_of(label: str) -> int | None:
    """Returns the place in METHODS of the method that a label names with its first word or two; None if it names none.

    >>> place_of("MIME SGDm"), place_of("fedavg wima50"), place_of("W = 5")
    (4, 0, None)
    """
    words = re.findall(r"[a-z]+", label.lower())
    one, two = ("".join(words[:count]) for count in (1, 2))
    return _PLACES.get(two, _PLACES.get(one))


def looks(labels: Sequence[str]) -> list[dict[str, Any]]:
    """Returns color, dash and marker of lines: a method looks the same in every figure.

    Further lines of a method (its read-outs, its variants) share its color where several methods are compared. Where
    all lines are of one method they have colors that are no method's, like lines whose label names no method.
    """
    places = [place_of(label) for label in labels]
    one = len(set(places)) == 1
    found: list[dict[str, Any]] = []
    variations = itertools.count(int(one and places[0] is not None))  # no dash and marker of the method's own
    for index, place in enumerate(places):
        repetition = places[:index].count(place)
        if place is None or (one and repetition):
            found.append(look(next(variations), VARIATIONS))
            continue
        own = look(place)
        if repetition:
            dash, shape = DASHES.index(own["linestyle"]), MARKERS.index(own["marker"])
            own["linestyle"] = DASHES[(dash + 2 * repetition) % len(DASHES)]
            own["marker"] = MARKERS[(shape + 2 * repetition) % len(MARKERS)]
            own["markerfacecolor"] = "white"
        found.append(own)
    return found


def row_colors(labels: Sequence[str]) -> list[str]:
    """Returns one color per row: the method's own, or gray for rows that are no method."""
    return [NEUTRAL if (place := place_of(label)) is None else look(place)["color"] for label in labels]


def variant_look(number: int, count: int) -> dict[str, Any]:
    """Returns the marker of the n-th of `count` variants of a row; the first of several is hollow."""
    hollow = {"markerfacecolor": "white"} if count > 1 and not number else {}
    return {"marker": MARKERS[number % len(MARKERS)]} | hollow


def variant_handles(names: Sequence[str]) -> list[Any]:
    """Returns the entries of a legend of a row's variants; their markers are gray, since colors are the rows'."""
    from matplotlib.lines import Line2D

    looks = (variant_look(number, len(names)) for number in range(len(names)))
    return [Line2D([], [], color=NEUTRAL, linestyle="none", markersize=5, **look) for look in looks]


def axis_of(metric: str, where: str = "test") -> str:
    """Returns the axis label of a metric, such as 'test accuracy (%)'; `where` is the split of the examples."""
    where = where if metric.startswith(("accuracy", "error", "loss", *WORDS)) else ""
    name = " ".join(word for word in (where, title_of(metric)) if word)
    return f"{name} (%)" if is_share(metric) else name


def scaled(metric: str, values) -> np.ndarray:
    """Returns values of a metric, nested lists of numbers or None, as drawn: fractions in percent, None as NaN."""
    return (PERCENT if is_share(metric) else 1) * np.array(values, float)


def level(metric: str, value: float) -> str:
    """Returns a value of a metric for a legend, such as '60 %'."""
    return f"{float(scaled(metric, value)):g}{' %' if is_share(metric) else ''}"


def check_shares(metric: str, values: Iterable[float | None]) -> None:
    """Raises UserError for a value of a metric that is a fraction, given in percent."""
    if is_share(metric) and (high := max((value for value in values if value is not None), default=0)) > 1:
        raise UserError(f"{metric} is a fraction, and {high:g} is more than 1; write 0.6 for 60 %.")


def wrapped(label: str, letters: int = 24) -> str:
    """Returns an axis label in lines of at most `letters` characters."""
    return textwrap.fill(label, letters, break_on_hyphens=False)


def height_of(labels: Iterable[str]) -> float:
    """Returns the inches that the tallest of some axis labels takes."""
    return 0.14 * max(label.count("\n") + 1 for label in labels)


def plain(value: Any) -> Any:
    """Returns JSON data: arrays become lists, NaN and infinity, which JSON lacks, None, and other objects text."""
    if hasattr(value, "tolist"):  # an array, or one of its numbers
        value = value.tolist()
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, (str, int, float, bool)) or value is None else str(value)


def subplots(*shape: int, figsize: tuple[float, float], **options) -> tuple[Figure, Any]:
    """Returns (figure, axes) as pyplot.subplots does, without a display or pyplot's global state."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=figsize, layout="constrained")
    return figure, figure.subplots(*shape, **options)


@contextlib.contextmanager
def panels(
    path: str | pathlib.Path | None, title: str, rows: int = 1, columns: int = 1, width=WIDTH, height=HEIGHT, **more
) -> Iterator[tuple[Figure, np.ndarray]]:
    """Yields a figure and its panels [rows, columns], and saves the picture at the end.

    Needs no display and changes no global state of pyplot; a notebook shows the figure that `draw` returns.

    Args:
      path: where the picture goes; None: it is not saved.
      width: width of a panel, in inches.
      height: height of a panel, in inches.
    """
    from matplotlib import style

    with style.context(STYLE):
        figure, grid = subplots(rows, columns, figsize=(columns * width, rows * height), squeeze=False, **more)
        yield figure, grid
        figure.suptitle("\n".join(wrapped(line, int(14.5 * columns * width)) for line in title.split("\n")), wrap=True)
        if path is not None:
            save(figure, pathlib.Path(path), DPI)


def save(figure: Figure, path: pathlib.Path, dpi: int | None = None) -> None:
    """Writes a picture, atomically: processes that share a folder see whole files only.

    All texts are shown as they are, control characters as escapes; only numbers of ticks are mathematical notation.
    """
    from matplotlib import rc_context
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        if said := text.get_text():
            text.set_text("\n".join(map(escape, said.split("\n"))))
            text.set_parse_math(r"\mathdefault" in said)

    form, picture = path.suffix[1:].lower(), io.BytesIO()
    date = DATED.get(form)
    with rc_context(FILES):
        figure.savefig(picture, format=form, dpi=dpi or DEFAULT_DPI, metadata={date: None} if date else None)
    replace_bytes(path, picture.getvalue())


def mean_of(counts: Iterable[int]) -> str:
    """Returns 'mean of 5 seeds' for the numbers of seeds of lines or points; '' for single seeds."""
    numbers = sorted(set(counts))
    if numbers in ([], [1]):
        return ""
    return f"mean of {numbers[0]} seeds" if len(numbers) == 1 else f"mean of {numbers[0]} to {numbers[-1]} seeds"


def end_at_hundred(axis, metric: str) -> None:
    """Ends the vertical axis at 100 %, which bands and margins may exceed, if the metric is a share."""
    if is_share(metric) and axis.get_ylim()[1] > PERCENT:
        axis.set_ylim(top=PERCENT)


def mark_lost(axis, x: Sequence[float], color: str, label: str | None = None) -> None:
    """Marks values that diverged, or are not to scale, by crosses at the lower edge of the axes."""
    axis.plot(x, [0.0] * len(x), transform=axis.get_xaxis_transform(), color=color, label=label, **LOST)


def widened(low: float, high: float) -> tuple[float, float]:
    """Returns the limits of an accuracy axis, at least LEAST_SPAN percentage points apart: noise must look small.

    >>> widened(92.0, 92.5), widened(10.0, 90.0)
    ((91.25, 93.25), (10.0, 90.0))
    """
    more = max(LEAST_SPAN - (high - low), 0.0) / 2
    return low - more, high + more


def legend(axis) -> None:
    """Adds a legend: one of few lines inside the axes, a long one below, for which the figure grows."""
    pairs = zip(*axis.get_legend_handles_labels(), strict=True)
    handles, names = zip(*sorted(pairs, key=lambda pair: pair[1] == NOT_TO_SCALE), strict=True)
    labels = [wrapped(name, int(10 * axis.figure.get_figwidth() - 17)) for name in names]  # two fit beside each other
    lines = sum(label.count("\n") + 1 for label in labels)
    if lines <= INSIDE:
        axis.legend(handles, labels, loc="best")
    else:
        # Outside, so that the layout keeps it clear of the axis label, which may have two lines.
        axis.figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)
        axis.figure.set_figheight(axis.figure.get_figheight() + 0.17 * max(lines / 2 - INSIDE, 0))


def within_percent(axis, way: str) -> None:
    """Limits an axis of percentages, 'x' or 'y', to 0 .. 100, which intervals may exceed."""
    low, high = getattr(axis, f"get_{way}lim")()
    if low < 0 or high > 100:
        getattr(axis, f"set_{way}lim")(max(low, -1), min(high, 101))


def slant(axis) -> None:
    """Rotates the tick labels of the x axis, so that long ones do not overlap."""
    for label in axis.get_xticklabels():
        label.set(rotation=20, ha="right", rotation_mode="anchor")
