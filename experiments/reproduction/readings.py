"""Verdicts on claims about figures of trained models: numbers that are read off a figure's stored data."""

import json
from typing import Any

import numpy as np

from ..figures import factors, line, plane
from ..papers.items import Analysis, Claim
from ..papers.measures import MeanLast, MeanLoss, Measure
from .verdicts import Comparison, Verdict

# The split of the examples that claims are about.
SPLIT = "test"
# Metrics that are shares, whose differences count in percentage points.
SHARES = ("error", "test_error", "train_error", "heter_error")


def readings(figure: dict[str, Any]) -> dict[tuple[str, str], float]:
    """Returns (name, metric) -> number; of numbers that belong together the best.

    Of a plane 'mean' and 'corner', the mean of its three models and the best of them; of a line 'first', 'second',
    'end', the better of these two, and 'between', the best point between them; of factors the last round of every run.

    Args:
      figure: what its kind's `compute` returned.
    """
    found: dict[tuple[str, str], float] = {}
    if figure["kind"] == plane.KIND:
        for mark in figure["points"]:
            for metric in ("loss", "error"):
                key = (mark["role"], metric)
                found[key] = min(found.get(key, np.inf), mark[metric])
    elif figure["kind"] == line.KIND:
        s, values = np.array(figure["s"]), figure["splits"][SPLIT]
        curves = {"loss": np.array(values["loss"]), "error": 1 - np.array(values["accuracy"])}
        for metric, curve in curves.items():
            first, second = (float(curve[np.argmin(np.abs(s - end))]) for end in (0, 1))
            found |= {("first", metric): first, ("second", metric): second, ("end", metric): min(first, second)}
            found["between", metric] = float(curve[(s > 1e-9) & (s < 1 - 1e-9)].min())
    elif figure["kind"] == factors.KIND:
        for run in figure["runs"]:
            found |= {
                (run["label"], name): values[-1] for name, values in run.items() if name not in ("label", "rounds")
            }
    return found


def verdicts(item: Analysis, text: str | None) -> list[Verdict]:
    """Returns a verdict on each of a figure's claims; those of a figure that is not stored are not tested.

    Args:
      item: the figure.
      text: its data, as JSON; None: not stored.
    """
    found = readings(json.loads(text)) if text is not None else {}
    return [_verdict(item, claim, found) for claim in item.claims]


def _verdict(item: Analysis, claim: Claim, found: dict[tuple[str, str], float]) -> Verdict:
    """Returns what a figure, of one seed, says about a claim."""
    keys = [(dict(side)["reading"], dict(side)["metric"]) for side in (claim.better, claim.worse)]
    if not all(key in found for key in keys):
        return Verdict(claim, [])
    seed, factor = item.seeds[0], 100 if keys[0][1] in SHARES else 1
    better, worse = (-factor * found[key] for key in keys)
    gains = {seed: better - worse}
    sources = tuple((item.name, *key) for key in keys)
    comparison = Comparison(keys[0] + ("",), {seed: better}, {seed: worse}, gains, sources)
    measure: type[Measure] = MeanLast if factor == 100 else MeanLoss if keys[0][1] == "loss" else Measure
    return Verdict(claim, [comparison], measure)
