"""The winner of a grid of which a paper does not print it: chosen on examples that the clients hold out."""

import functools

from fedwin.engine.validation import PREFIX

from ..papers.items import Cell
from ..papers.trajectories import Checkpoint, Run
from .shelf import Shelf, curves

# Share of every client's examples that is held out while a grid is searched, with the first seed.
HELD_OUT = 0.1
METRIC = f"{PREFIX}accuracy"


@functools.cache
def trial_of(run: Run) -> Run:
    """Returns the run that tries a point of a grid: the same, but trained without what is held out."""
    fields = run.fields | {"val_fraction": run.fields.get("val_fraction") or HELD_OUT, "eval_val": True}
    source = run.parent
    return Run(fields, None if source is None else Checkpoint(trial_of(source.run), source.round, source.part))


def scores(shelf: Shelf, cell: Cell) -> list[float | None]:
    """Returns the mean held-out accuracy over the last rounds of every point of a cell's grid; None: not finished."""
    found: list[float | None] = []
    for run in cell.runs:
        trials = curves(shelf, trial_of(run), cell.read, METRIC)
        curve = trials[min(trials)] if trials else None
        ended = curve is not None and (curve.diverged or curve.final is not None)
        found.append((curve.final or 0.0) if curve is not None and ended else None)
    return found


def chosen(shelf: Shelf, cell: Cell) -> int | None:
    """Returns which of a cell's runs counts: the winner of its grid; None while the grid is being searched."""
    if len(cell.runs) == 1:
        return 0
    known = scores(shelf, cell)
    if any(score is None for score in known):
        return None
    return max(range(len(known)), key=lambda number: known[number] or 0.0)


def told(shelf: Shelf, cell: Cell) -> str:
    """Returns a grid and its held-out accuracies in words; '' where there is none."""
    if len(cell.runs) == 1:
        return ""
    points = zip(cell.runs, scores(shelf, cell), strict=True)
    return "; ".join(f"{_point(cell, run)} {'-' if s is None else f'{100 * s:.2f} %'}" for run, s in points)


def _point(cell: Cell, run: Run) -> str:
    """Returns what tells a point from the others of its grid."""
    differing = {name for each in cell.runs for name, value in each.fields.items() if value != run.fields.get(name)}
    return " ".join(f"--{name}={run.fields[name]}" for name in sorted(differing) if name in run.fields)
