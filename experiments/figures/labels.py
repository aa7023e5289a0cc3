"""Figure of the label histograms of clients, a panel per partition."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedwin import data
from fedwin.errors import UserError

from . import style

CLIENTS = 10
# More classes are shown by a color bar instead of a legend.
NAMED = 20


def of_partitions(
    dataset: data.Dataset, partitions: Sequence[str], num_clients: int | None = None, seed: int = 0
) -> dict[str, np.ndarray]:
    """Returns the histograms [K, C] of several partitions of a data set, for `compute`.

    Args:
      partitions: such as 'dirichlet:alpha=0.1'.
      num_clients: K; None: the data set's own, else 100.

    Raises:
      UserError: an unknown partition, or a data set without classes.
    """
    if dataset.task != "classification":
        raise UserError(f"'{dataset.name}' has no classes; label histograms need a classification.")
    labels = np.asarray(dataset.train["y"])
    counts = lambda part: part.class_counts(labels, dataset.num_classes)
    return {text: counts(data.make_partition(dataset, text, num_clients, seed)) for text in partitions}


def compute(
    histograms: Mapping[str, np.ndarray], class_names: Sequence[str] = (), clients: Sequence[int] = ()
) -> dict[str, Any]:
    """Returns the histograms of some clients.

    Args:
      histograms: label of the panel -> examples of each class and client [K, C].
      class_names: names of the classes; may be empty.
      clients: their ids; by default the first CLIENTS.

    Raises:
      UserError: nothing to draw, or a client that does not exist.
    """
    if not histograms:
        raise UserError("labels: name a partition, such as dirichlet:alpha=0.1, or a run.")
    panels = []
    for label, counts in histograms.items():
        shown = list(clients) or list(range(min(CLIENTS, len(counts))))
        if not shown or min(shown) < 0 or max(shown) >= len(counts):
            raise UserError(f"labels: '{label}' has the clients 0..{len(counts) - 1}.")
        panels.append({"label": label, "clients": shown, "histogram": style.plain(np.asarray(counts)[shown])})
    return {"kind": "labels", "class_names": [str(name) for name in class_names], "panels": panels}


def draw(result: dict[str, Any], path: str | pathlib.Path | None, title: str):
    """Draws a panel per partition, a stacked bar per client."""
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    panels = result["panels"]
    classes = max(len(panel["histogram"][0]) for panel in panels)
    most = max(len(panel["clients"]) for panel in panels)
    steps = colormaps["viridis"](np.linspace(0, 1, classes))
    colors = style.CLASSES if classes <= len(style.CLASSES) else steps
    names = result["class_names"] if len(result["class_names"]) == classes else [str(c) for c in range(classes)]
    across = 1 if len(panels) == 1 else 2
    down = -(-len(panels) // across)
    height = max(0.75 + 0.17 * most, 0.17 * (min(classes, NAMED) + 4) / down)  # that of the legend, too
    with style.panels(path, title, down, across, width=0.8 * style.WIDTH, height=height) as (figure, grid):
        for axis in grid.flat[len(panels) :]:
            axis.set_axis_off()
        for axis, panel in zip(grid.flat, panels):
            histogram = np.array(panel["histogram"])
            left = np.zeros(len(histogram))
            rows = range(len(histogram))
            for label in range(classes):
                axis.barh(rows, histogram[:, label], 0.8, left, color=colors[label], label=names[label])
                left += histogram[:, label]
            axis.set_yticks(rows, [str(client) for client in panel["clients"]])
            axis.set(xlabel="examples", ylabel="client", title=style.wrapped(panel["label"], 40))
            axis.set(xlim=(0, 1.02 * left.max()), ylim=(len(rows) - 0.4, -0.6))
            axis.xaxis.get_major_locator().set_params(integer=True)
        if classes <= NAMED:
            handles, labels = grid[0, 0].get_legend_handles_labels()
            figure.legend(handles, labels, loc="outside right center", title="class", frameon=False)
        else:
            scale = ScalarMappable(Normalize(0, classes - 1), "viridis")
            figure.colorbar(scale, ax=grid.ravel().tolist(), label="class")
    return figure
