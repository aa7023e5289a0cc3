"""What pictures have in common: colours that colour-blind readers can tell apart, and files written in one step."""

import os
import pathlib

from fedwin.files import writing

# Okabe and Ito's palette without its yellow, which is too pale for lines on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
# Shapes tell apart what colours alone do not, in print for one.
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DPI = 130
# Of a label on an axis.
LONGEST = 44


def colour(number: int) -> str:
    """Returns the colour of the n-th thing."""
    return COLOURS[number % len(COLOURS)]


def marker(number: int) -> str:
    """Returns the shape of the n-th thing."""
    return MARKERS[number % len(MARKERS)]


def short(text: str) -> str:
    """Returns a label that leaves room for the picture: its end is cut, which `...` says."""
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def subplots(*args, **more):
    """Returns (figure, axes) as pyplot.subplots does, without a display."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    return plt.subplots(*args, layout="constrained", **more)


def save(figure, path: pathlib.Path, dpi: int = DPI) -> None:
    """Writes a picture in one step, as several processes may, and closes it."""
    from matplotlib import pyplot as plt

    beside = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    with writing(path):
        try:
            figure.savefig(beside, dpi=dpi)
            os.replace(beside, path)
        finally:
            beside.unlink(missing_ok=True)
            plt.close(figure)


def within_percent(axis, way: str) -> None:
    """Ends an axis of percentages, 'x' or 'y', at 0 and 100, where intervals may go beyond."""
    low, high = getattr(axis, f"get_{way}lim")()
    if low < 0 or high > 100:
        getattr(axis, f"set_{way}lim")(max(low, -1), min(high, 101))


def colour_map(name: str, missing: str):
    """Returns a colour map; `missing` is the colour of what has no number."""
    import matplotlib

    return matplotlib.colormaps[name].with_extremes(bad=missing)


def slant(axis) -> None:
    """Slants the labels below an axis, so that long ones do not run into each other."""
    for label in axis.get_xticklabels():
        label.set(rotation=20, ha="right", rotation_mode="anchor")


def outline(axis, place: tuple[int, int], colour: str) -> None:
    """Draws a frame around a cell (column, row) of an image."""
    from matplotlib.patches import Rectangle

    x, y = place
    axis.add_patch(Rectangle((x - 0.48, y - 0.48), 0.96, 0.96, fill=False, edgecolor=colour, linewidth=3))
