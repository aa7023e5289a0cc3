"""Figure of loss and accuracy on the straight line through two models."""

import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedwin import analysis
from fedwin.callbacks.scores import main_metric
from fedwin.errors import UserError
from fedwin.runs.load import TrainedModel

from . import probing, style

# Range and number of points; the models are at 0 and 1.
BEGIN, END, POINTS = -0.5, 1.5, 41
# Split of the examples -> look of its curve.
LOOKS: dict[str, dict[str, str]] = {
    "train": {"color": "0.6", "linestyle": "--", "marker": "s"},
    "test": {"color": "0.15", "linestyle": "-", "marker": "o"},
}


@probing.in_precision
def compute(trained: TrainedModel, ends: Mapping[str, Any], *, points: int = POINTS, count: int = 0) -> dict[str, Any]:
    """Returns loss and accuracy of (1 - s) w_1 + s w_2, evaluated in one compiled program.

    Args:
      ends: label -> Variables of the two models.
      points: number of points of evaluation, s from -0.5 to 1.5.

    Raises:
      UserError: not two models, or two of different networks.
    """
    if len(ends) != 2:
        raise UserError(f"line: {len(ends)} model(s); name two.")
    places = np.linspace(BEGIN, END, points)
    evaluate, batches = probing.probe(trained, tuple(LOOKS), count)
    rows = np.stack([1 - places, places], 1)
    metrics = analysis.mixtures(list(ends.values()), rows, evaluate, batches)
    names = ("loss", main_metric(metrics["train"]))
    curves = {split: {name: style.plain(metrics[split][name]) for name in names} for split in LOOKS}
    distance = float(np.linalg.norm(np.subtract(*(analysis.vector(model) for model in ends.values()))))
    return {"kind": "line", "labels": list(ends), "s": places.tolist(), "distance": distance, "splits": curves}


def draw(result: dict[str, Any], path: str | pathlib.Path | None, title: str):
    """Draws a panel of the loss and one of the accuracy, with the two models as vertical lines."""
    with style.panels(path, title, columns=2, width=0.8 * style.WIDTH, height=0.95 * style.HEIGHT) as (figure, grid):
        for axis, metric in zip(grid[0], next(iter(result["splits"].values()))):
            for split, values in result["splits"].items():
                numbers = style.scaled(metric, values[metric])
                axis.plot(result["s"], numbers, label=split, markevery=5, **LOOKS[split])
            for end in (0, 1):
                axis.axvline(end, color="0.35", linewidth=0.9, linestyle=":")
            axis.set(xlabel="s of (1 - s) w₁ + s w₂", ylabel=style.axis_of(metric, ""))
            axis.grid(alpha=0.3)
            axis.legend(loc="best")
        ends = "s = 0: {};  s = 1: {};  their distance {:.3g}".format(*result["labels"], result["distance"])
        figure.supxlabel(style.wrapped(ends, 105), fontsize=8)
    return figure
