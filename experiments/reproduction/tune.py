"""Grid search where a paper does not print the best hyper-parameters: chosen by accuracy on held-out examples."""

import functools

from fedwin.engine.evaluate import VALIDATION_PREFIX

from ..papers.items import Cell
from ..papers.trajectories import Checkpoint, Run
from .store import ResultStore, curves

# Share of every client's examples that is held out while a grid is searched, with the first seed.
HELD_OUT = 0.1
METRIC = f"{VALIDATION_PREFIX}accuracy"


@functools.cache
def search_run(run: Run) -> Run:
    """Returns the run that evaluates a point of a grid: the same, but trained without the held-out examples."""
    fields = run.fields | {"val_fraction": run.fields.get("val_fraction") or HELD_OUT, "eval_val": True}
    parent = run.parent
    return Run(fields, None if parent is None else Checkpoint(search_run(parent.run), parent.round, parent.part))


def held_out_accuracies(store: ResultStore, cell: Cell) -> list[float | None]:
    """Returns the mean held-out accuracy over the last rounds, for every point of a cell's grid.

    Args:
      store: where records are read.
      cell: with a grid.

    Returns:
      A number per point; None if its run has not finished, 0 if it diverged.
    """
    accuracies: list[float | None] = []
    for run in cell.runs:
        by_seed = curves(store, search_run(run), cell.read, METRIC)
        curve = by_seed[min(by_seed)] if by_seed else None
        ended = curve is not None and (curve.diverged or curve.final is not None)
        accuracies.append((curve.final or 0.0) if curve is not None and ended else None)
    return accuracies


def best_point(store: ResultStore, cell: Cell) -> int | None:
    """Returns the index of the run that counts for a cell: the best of its grid; None until all have been searched."""
    if len(cell.runs) == 1:
        return 0
    accuracies = held_out_accuracies(store, cell)
    if any(accuracy is None for accuracy in accuracies):
        return None
    return max(range(len(accuracies)), key=lambda index: accuracies[index] or 0.0)


def described(store: ResultStore, cell: Cell) -> str:
    """Returns the points of a cell's grid and their held-out accuracies in words; '' if there is no grid."""
    if len(cell.runs) == 1:
        return ""
    points = zip(cell.runs, held_out_accuracies(store, cell), strict=True)
    return "; ".join(f"{_point(cell, run)} {'-' if a is None else f'{100 * a:.2f} %'}" for run, a in points)


def _point(cell: Cell, run: Run) -> str:
    """Returns the flags that distinguish a point from the others of its grid."""
    differing = {name for each in cell.runs for name, value in each.fields.items() if value != run.fields.get(name)}
    return " ".join(f"--{name}={run.fields[name]}" for name in sorted(differing) if name in run.fields)
