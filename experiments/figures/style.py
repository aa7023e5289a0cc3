"""What all pictures share: size, letters, and looks that differ in colour, dash and marker alike."""

import contextlib
import pathlib
import textwrap
from collections.abc import Iterator
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from fedwin.errors import UserError

from .. import drawing
from ..drawing import COLOURS, MARKERS

DASHES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)), (0, (8, 2)), (0, (3, 1, 3, 3)))
# Ten that differ, Tol's 'muted'; more classes are steps of viridis.
CLASSES = (
    "#332288", "#88CCEE", "#44AA99", "#117733", "#999933", "#DDCC77", "#CC6677", "#882255", "#AA4499", "#BBBBBB",
)  # fmt: skip
# Inches of one panel, the width of a page's column; printed at that size, letters have 8 points.
WIDTH, HEIGHT = 4.4, 3.2
DPI = 160
# Percentage points of accuracy that an axis shows at least.
LEAST_SPAN = 2.0
# Entries of a legend that there is room for beside curves.
INSIDE = 4
LETTERS: Any = {
    "font.size": 8.5,
    "axes.titlesize": 9,
    "axes.labelsize": 8.5,
    "legend.fontsize": 7.5,
    "figure.titlesize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": True,
    "legend.framealpha": 0.85,
    "legend.edgecolor": "none",
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
}
# Fractions are drawn as per cent.
PERCENT = 100


def look(number: int) -> dict[str, Any]:
    """Returns colour, dash and marker of the number-th line; colours that come again have other dashes and markers."""
    again = number // len(COLOURS)
    return {
        "color": COLOURS[number % len(COLOURS)],
        "linestyle": DASHES[(number + again) % len(DASHES)],
        "marker": MARKERS[(number + 3 * again) % len(MARKERS)],
    }


def class_colours(classes: int) -> list[Any]:
    """Returns a colour per class."""
    if classes <= len(CLASSES):
        return list(CLASSES[:classes])
    return list(matplotlib.colormaps["viridis"](np.linspace(0, 1, classes)))


def is_share(metric: str) -> bool:
    """Whether a metric is drawn in per cent."""
    return metric.startswith(("accuracy", "error"))


def axis_of(metric: str, where: str = "test") -> str:
    """Returns how an axis of a metric is named: 'test accuracy (%)'; `where` is of measurements on examples alone."""
    where = where if metric.startswith(("accuracy", "error", "loss")) else ""
    name = " ".join(word for word in (where, metric.replace("_", " ")) if word)
    return f"{name} (%)" if is_share(metric) else name


def scaled(metric: str, values) -> np.ndarray:
    """Returns the values of a metric as they are drawn; None, which JSON has for NaN, becomes NaN again."""
    return (PERCENT if is_share(metric) else 1) * numbers(values)


def level(metric: str, value: float) -> str:
    """Returns a value of a metric as a legend says it: '60 %'."""
    return f"{float(scaled(metric, value)):g}{' %' if is_share(metric) else ''}"


def wrapped(label: str, letters: int = 24) -> str:
    """Returns a label of an axis in lines that leave room for the picture."""
    return textwrap.fill(label, letters)


def numbers(values) -> np.ndarray:
    """Returns nested lists as float64; None becomes NaN."""
    return np.array(values, dtype=np.float64)


def plain(values) -> Any:
    """Returns an array as nested lists of Python's numbers, None for what is not finite: JSON has no NaN."""
    values = np.asarray(values)
    if values.dtype.kind in "iub":
        return values.tolist()
    plain = values.astype(object)
    plain[~np.isfinite(values)] = None
    return plain.tolist()


@contextlib.contextmanager
def panels(
    path: str | pathlib.Path | None, title: str, rows: int = 1, columns: int = 1, width=WIDTH, height=HEIGHT, **more
) -> Iterator[tuple[Figure, np.ndarray]]:
    """Gives a figure and its panels [rows, columns], and saves the picture at the end.

    No window system and no global state of pyplot is involved; a notebook shows the figure that `draw` returns.

    Args:
      path: where the picture goes; None: it is not saved.
      title: the line above it.
      rows: of panels.
      columns: of panels.
      width: of a panel, in inches.
      height: of a panel, in inches.
      **more: for Figure.subplots.
    """
    with matplotlib.rc_context(LETTERS):
        figure = Figure(figsize=(columns * width, rows * height), layout="constrained")
        yield figure, figure.subplots(rows, columns, squeeze=False, **more)
        figure.suptitle(title, wrap=True)
        if path is not None:
            drawing.save(figure, pathlib.Path(path), DPI)


def widened(low: float, high: float) -> tuple[float, float]:
    """Returns an axis of accuracies in per cent at least LEAST_SPAN long: noise must not look like an effect.

    >>> widened(92.0, 92.5), widened(10.0, 90.0)
    ((91.25, 93.25), (10.0, 90.0))
    """
    more = max(LEAST_SPAN - (high - low), 0.0) / 2
    return low - more, high + more


def legend(axis, entries: int) -> None:
    """Puts a short legend where there is room inside, a long one below."""
    if entries <= INSIDE:
        axis.legend(loc="best")
    else:
        axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=2, frameon=False)


def path_of(text: str, usual: str) -> str:
    """Returns where a picture goes, `.png` where nothing says its kind.

    Args:
      text: what was asked for.
      usual: a good answer, for the error line.

    Raises:
      UserError: no name, no such folder, or a kind of file that cannot be written.
    """
    path = pathlib.Path(text)
    if len(path.name.encode()) > 250:
        raise UserError(f"out={text[:40]}...: the name is too long; choose a shorter --out.")
    if not path.name or path.is_dir():
        raise UserError(f"out={text}: this is not the name of a file; write --out={usual}.")
    if not path.parent.is_dir():
        raise UserError(f"out={text}: there is no folder {path.parent}; make it, or choose another --out.")
    if not path.suffix:
        return f"{text}.png"
    known = Figure().canvas.get_supported_filetypes()
    if path.suffix[1:].lower() not in known:
        raise UserError(f"out={text}: {path.suffix} is no kind of picture; it may end in {', '.join(sorted(known))}.")
    return text
