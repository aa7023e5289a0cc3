"""All tables and figures: how many cells, how far they are, what they cost, what is missing."""

from ..papers.catalogue import catalogue
from ..papers.items import Item, Sketch
from ..text import columns
from .data_there import missing
from .plan import Selection, needs, plan, seeds_of
from .shelf import Shelf, curves


def _row(one: Selection, scale: str, shelf: Shelf, data_dir: str) -> tuple[str, ...]:
    if isinstance(one, Sketch):
        return (one.name, "-", "-", "-", one.why, "", one.title)
    runs = {run.key: run for run, _, _ in needs(one, scale)}
    seeds = seeds_of(one, scale)
    done = sum(_finished(shelf, run) >= len(seeds) for run in runs.values())
    cells = len(one.cells(scale)) if isinstance(one, Item) else len(one.runs)
    datasets = sorted({run.config().dataset for run in runs.values()})
    lacking = [dataset for dataset in datasets if missing(dataset, data_dir)]
    cost = one.cost if scale == "paper" else f"{sum(run.num_rounds for run in runs.values()) * len(seeds):,} rounds"
    return (one.name, str(cells), f"{done}/{len(runs)}", str(len(seeds)), cost, " ".join(lacking), one.title)


def _finished(shelf: Shelf, run) -> int:
    """Returns how many seeds of a run have ended."""
    return sum(curve.final is not None or curve.diverged for curve in curves(shelf, run).values())


def table(scale: str, shelf: Shelf, data_dir: str) -> str:
    """Returns a line per table and figure.

    Args:
      scale: smoke, trend or paper.
      shelf: where curves are read.
      data_dir: folder of the data sets' files.
    """
    head = ("item", "cells", "runs done", "seeds", f"cost ({scale})", "data missing", "what it shows")
    rows = [head, *(_row(one, scale, shelf, data_dir) for one in catalogue().values())]
    runs = len(plan(catalogue().values(), scale))
    return f"{columns(rows)}\n{len(rows) - 1} tables and figures, {runs} different runs at scale {scale}"
