"""The picture of a run: accuracy over rounds."""

import math
import pathlib
from typing import Any

import numpy as np

from fedwin.errors import UserError
from fedwin.runs.storage import writing

Curve = tuple[str, np.ndarray, np.ndarray]


def curves(
    lines: list[dict[str, Any]], readout: str, metric: str = "accuracy", every: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """Returns (rounds [R], values [S, R]) of one read-out for the rounds that every seed has; S >= 1.

    Seeds that diverged, or ended before the others, are left out unless all of them did.

    Args:
      lines: those of metrics.jsonl.
      readout: its name.
      metric: which of its numbers.
      every: only rounds that are multiples of this, so that the curve is equally dense everywhere.
    """
    by_seed: dict[int, dict[int, float]] = {}
    for line in lines:
        if readout in line and line["round"] % every == 0:
            by_seed.setdefault(line["seed"], {})[line["round"]] = float(line[readout][metric])
    if not by_seed:
        raise UserError(f"there is no evaluation of {readout} to draw.")
    end = max(max(found) for found in by_seed.values())
    losses = ((line["seed"], line[readout].get("loss", 0)) for line in lines if readout in line)
    diverged = {seed for seed, loss in losses if not math.isfinite(float(loss))}
    whole = [found for seed, found in by_seed.items() if max(found) == end and seed not in diverged]
    kept = whole or list(by_seed.values())
    rounds = sorted(set.intersection(*(set(found) for found in kept)))
    return np.array(rounds), np.array([[found[r] for r in rounds] for found in kept])


def draw(found: list[Curve], path: str | pathlib.Path, title: str) -> None:
    """Draws accuracy curves to a PNG.

    Args:
      found: (label, rounds [R], accuracies [S, R]) of each; the line is the mean over seeds, the band one standard
        deviation, thin lines the seeds.
      path: where the PNG goes.
      title: the line above it.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axis = plt.subplots(figsize=(8.5, 5), layout="constrained")
    for number, (label, rounds, values) in enumerate(found):
        color = f"C{number}"
        mean, std = np.nanmean(values, 0), np.nanstd(values, 0)
        axis.fill_between(rounds, 100 * (mean - std), 100 * (mean + std), color=color, alpha=0.15, linewidth=0)
        for seed in values:
            axis.plot(rounds, 100 * seed, color=color, alpha=0.25, linewidth=0.6)
        axis.plot(rounds, 100 * mean, color=color, label=label, linewidth=1.8)
    axis.set(xlabel="round", ylabel="test accuracy (%)", ylim=(0, 100))
    axis.grid(alpha=0.3)
    axis.legend(loc="lower right")
    figure.suptitle(title, fontsize="medium")
    with writing(path):
        figure.savefig(path, dpi=130)
    plt.close(figure)
