"""Verdicts on claims about figures of trained models: numbers that are read off a figure's stored data."""

import json
from typing import Any

import numpy as np

from ..figures import factors, line, plane
from ..papers.items import Analysis, Claim
from ..papers.measures import MeanLast, MeanLoss, Measure
from .verdicts import Comparison, Verdict

# The entry of a figure's data that has them, by seed; a figure without claims needs none.
READINGS = "readings"
# The split of the examples that claims are about.
SPLIT = "test"
# Metrics that are shares, whose differences count in percentage points.
SHARES = ("error", "test_error", "train_error", "heter_error")


def readings(figure: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Returns name -> metric -> number; of numbers that belong together the best.

    Of a plane 'mean' and 'corner', the mean of its three models and the best of them; of a line 'first', 'second',
    'end', the better of these two, and 'between', the best point between them; of factors the last round of every run.

    Args:
      figure: what its kind's `compute` returned.
    """
    found: dict[str, dict[str, float]] = {}
    if figure["kind"] == plane.KIND:
        for mark in figure["points"]:
            best = found.setdefault(mark["role"], {"loss": np.inf, "error": np.inf})
            found[mark["role"]] = {metric: min(number, mark[metric]) for metric, number in best.items()}
    elif figure["kind"] == line.KIND:
        s, values = np.array(figure["s"]), figure["splits"][SPLIT]
        curves = {"loss": np.array(values["loss"]), "error": 1 - np.array(values["accuracy"])}
        inside = (s > 1e-9) & (s < 1 - 1e-9)
        first, second = (
            {metric: float(curve[np.argmin(np.abs(s - end))]) for metric, curve in curves.items()} for end in (0, 1)
        )
        found = {"first": first, "second": second}
        found["end"] = {metric: min(first[metric], second[metric]) for metric in curves}
        found["between"] = {metric: float(curve[inside].min()) for metric, curve in curves.items()}
    elif figure["kind"] == factors.KIND:
        for run in figure["runs"]:
            found[run["label"]] = {name: values[-1] for name, values in run.items() if name not in ("label", "rounds")}
    return found


def verdicts(item: Analysis, scale: str, text: str | None) -> list[Verdict]:
    """Returns a verdict on each of a figure's claims; those of a figure that is not stored are not tested.

    Args:
      item: the figure.
      scale: smoke, trend or paper.
      text: its data, as JSON; None: not stored.
    """
    by_seed = json.loads(text).get(READINGS, {}) if text is not None else {}
    models = (tuple(run.key for run in item.trajectories(scale).values()), item.checkpoints(scale))
    return [_verdict(claim, by_seed, (item.kind, *models)) for claim in item.claims]


def _verdict(claim: Claim, by_seed: dict[str, dict[str, dict[str, float]]], models: tuple[Any, ...]) -> Verdict:
    """Returns what a figure says about a claim.

    Args:
      claim: about it.
      by_seed: seed -> its readings.
      models: what determines the readings; two figures may show the same models.
    """
    keys = [(dict(side)["reading"], dict(side)["metric"]) for side in (claim.better, claim.worse)]
    complete = {
        int(seed): found
        for seed, found in by_seed.items()
        if all(metric in found.get(name, {}) for name, metric in keys)
    }
    if not complete:
        return Verdict(claim, [])
    factor = 100 if keys[0][1] in SHARES else 1
    better, worse = ({seed: -factor * found[name][metric] for seed, found in complete.items()} for name, metric in keys)
    gains = {seed: better[seed] - worse[seed] for seed in complete}
    sources = tuple((models, *key) for key in keys)
    comparison = Comparison(keys[0] + ("",), better, worse, gains, sources)
    measure: type[Measure] = MeanLast if factor == 100 else MeanLoss if keys[0][1] == "loss" else Measure
    return Verdict(claim, [comparison], measure)
