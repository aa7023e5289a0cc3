"""The picture of a partition: which client holds how many examples of which class."""

import matplotlib
import numpy as np

from fedwin import data
from fedwin.errors import UserError

matplotlib.use("Agg")
from matplotlib import pyplot as plt


def draw(part: data.Partition, dataset: data.Dataset, kind: str, shown: int, path: str) -> None:
    """Draws the first clients of a partition to a file.

    Args:
      part: the partition.
      dataset: what it deals; names the classes.
      kind: 'bubbles' of area proportional to the examples, or stacked 'bars'.
      shown: how many clients, the first ones.
      path: where the picture goes.

    Raises:
      UserError: when the data set has no classes, or the file cannot be written.
    """
    histogram = part.report["histogram"]
    if histogram is None:
        raise UserError(f"'{dataset.name}' has no class histogram to draw; use --plot=none.")
    histogram = histogram[:shown]
    clients, classes = histogram.shape
    height = min(2.0 + 0.28 * classes, 12.0) if kind == "bubbles" else 4.2
    figure, axes = plt.subplots(figsize=(min(3.0 + 0.22 * clients, 14.0), height), layout="constrained")
    named = classes <= 30 and len(dataset.class_names or ()) == classes
    names = [str(name) for name in (dataset.class_names if named else range(classes))]
    (_bubbles if kind == "bubbles" else _bars)(figure, axes, histogram, names)
    if clients <= 60:
        axes.set_xticks(range(0, clients, 1 if clients <= 20 else 5))
    of = f" ({clients} of {part.num_clients})" if clients < part.num_clients else ""
    axes.set(xlabel=f"client{of}", title=f"{dataset.name}, {part.report['partition']}")
    axes.spines[["top", "right"]].set_visible(False)
    try:
        figure.savefig(path, dpi=130)
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: the picture cannot be written ({error}); choose another --out.") from error
    finally:
        plt.close(figure)


def _colours(classes: int):
    return plt.get_cmap("tab20" if classes > 10 else "tab10")


def _bubbles(figure, axes, histogram: np.ndarray, names: list[str]) -> None:
    clients, classes = histogram.shape
    colours = _colours(classes)
    client, label = np.nonzero(histogram)
    count = histogram[client, label]
    room = min(figure.get_figwidth() * 66 / clients, figure.get_figheight() * 66 / classes)
    area = np.maximum((0.95 * room) ** 2 * count / histogram.max(), 1.0)
    axes.scatter(client, label, s=area, c=colours(label % colours.N), linewidths=0)
    axes.set(ylabel="class", ylim=(-0.8, classes - 0.2), xlim=(-0.8, clients - 0.2))
    axes.grid(alpha=0.25, linewidth=0.5)
    axes.set_axisbelow(True)
    if classes <= 30:
        axes.set_yticks(range(classes), names)


def _bars(figure, axes, histogram: np.ndarray, names: list[str]) -> None:
    clients, classes = histogram.shape
    colours, bottom = _colours(classes), np.zeros(clients)
    for c in range(classes):
        colour = colours(c % colours.N)
        axes.bar(range(clients), histogram[:, c], bottom=bottom, width=0.85, color=colour, label=names[c])
        bottom += histogram[:, c]
    axes.set(ylabel="examples", xlim=(-0.8, clients - 0.2), ylim=(0, 1.03 * bottom.max()))
    if classes <= 20:
        axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5), title="class", frameon=False)
