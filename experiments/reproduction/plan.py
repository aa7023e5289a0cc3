"""From tables and figures to the runs that they need, each once."""

import dataclasses
import functools
import math
from collections.abc import Iterable, Iterator

from fedwin.runs.fingerprint import hash_of

from ..papers.catalogue import catalogue
from ..papers.items import Analysis, Cell, Item, Sketch
from ..papers.observing import MODEL
from ..papers.trajectories import Run
from .shelf import Kept, Shelf
from .tuning import chosen, trial_of

# Rounds between checkpoints; a run that is forked has one where it is forked too.
CHECKPOINTS = 100


@dataclasses.dataclass
class Task:
    """A run and all that is read off it, by whatever table or figure.

    Attributes:
      run: the trajectory.
      reads: observers, sorted.
      eval_every: rounds between evaluations.
      final_evals: rounds at the end that are all evaluated.
      stays: rounds whose checkpoints must stay: forks and figures begin there.
      seeds: that are asked for.
      uses: name of a table or figure -> how many of its cells read this run.
    """

    run: Run
    reads: set[str] = dataclasses.field(default_factory=set)
    eval_every: int = 0
    final_evals: int = 0
    stays: set[int] = dataclasses.field(default_factory=set)
    seeds: set[int] = dataclasses.field(default_factory=set)
    uses: dict[str, int] = dataclasses.field(default_factory=dict)

    @property
    def reading(self) -> str:
        """A hash of what is read off, for the name of its directory."""
        return hash_of([sorted(self.reads), self.eval_every, self.final_evals], size=3)

    def fields(self) -> dict:
        """Returns the fields of Config that say what is read off and kept."""
        return {
            "observe": sorted(self.reads),
            "eval_every": self.eval_every,
            "final_evals": self.final_evals,
            "checkpoint_every": CHECKPOINTS,
            "keep_rounds": sorted(self.stays),
        }


Selection = Item | Analysis | Sketch


def runs_of(cell: Cell) -> Iterator[tuple[Run, str]]:
    """Yields (run, read-out) of all that a cell may need: of a grid, every point and its trial."""
    for run in cell.runs:
        yield run, cell.read
        if len(cell.runs) > 1:
            yield trial_of(run), cell.read
    if cell.reference is not None:
        yield cell.reference, ""


def needs(item: Selection, scale: str) -> Iterator[tuple[Run, str, set[int]]]:
    """Yields (run, read-out, rounds whose checkpoints must stay) of all that an item needs.

    Args:
      item: a table or figure.
      scale: smoke, trend or paper.
    """
    if isinstance(item, Item):
        for cell in item.cells(scale):
            for run, read in runs_of(cell):
                yield run, read, set()
    elif isinstance(item, Analysis) and item.kind != "labels":  # histograms need no model
        for run in item.trajectories(scale).values():
            yield run, "", set(item.checkpoints(scale))


@functools.cache
def everything(scale: str) -> dict[str, Task]:
    """Returns key -> task of all that the whole catalogue needs at a scale; what a run must show is decided here.

    So a run that was trained for one table serves all others.
    """
    tasks: dict[str, Task] = {}
    for item in catalogue().values():
        for run, read, rounds in needs(item, scale):
            _add(tasks, run, read, rounds)
    return tasks


def _add(tasks: dict[str, Task], run: Run, read: str, rounds: set[int]) -> None:
    if run.parent is not None:
        _add(tasks, run.parent.run, "", {run.parent.round})
    task = tasks.setdefault(run.key, Task(run))
    config = run.config()
    if read and read != MODEL:
        task.reads.add(read)
    task.eval_every = math.gcd(task.eval_every, config.eval_every)
    task.final_evals = max(task.final_evals, config.final_evals)
    task.stays |= {r for r in rounds if r < config.num_rounds}


def seeds_of(item: Selection, scale: str) -> tuple[int, ...]:
    """Returns the seeds of an item where none are asked for."""
    if isinstance(item, Item):
        return {"paper": item.seeds, "trend": item.trend_seeds}.get(scale, item.trend_seeds[:1])
    return item.seeds if isinstance(item, Analysis) else ()


def plan(
    items: Iterable[Selection],
    scale: str,
    seeds: Iterable[int] = (),
    cells: dict[str, list[Cell]] | None = None,
    shelf: Shelf | None = None,
) -> list[Task]:
    """Returns the tasks that fill tables and figures, a run before those that are forked from it.

    Of a grid whose winner is not known yet these are the trials of its points, with the first seed; then the winner.

    Args:
      items: tables and figures.
      scale: smoke, trend or paper.
      seeds: instead of every item's own.
      cells: name of an item -> those of its cells that are asked for; without a name: all.
      shelf: where trials of grids are read; None: none has been made.
    """
    wanted: dict[str, Task] = {}
    for item in items:
        own = tuple(dict.fromkeys(seeds)) or seeds_of(item, scale)
        if isinstance(item, Item):
            asked = (cells or {}).get(item.name, item.cells(scale))
            found = [each for cell in asked for each in _of_cell(cell, own, shelf)]
        else:
            found = [(run, own) for run, _, _ in needs(item, scale)]
        for run, its_seeds in found:
            for each in _line(run):
                blank = dataclasses.replace(everything(scale)[each.key], seeds=set(), uses={})
                wanted.setdefault(each.key, blank).seeds |= set(its_seeds)
            wanted[run.key].uses[item.name] = wanted[run.key].uses.get(item.name, 0) + 1
    return list(wanted.values())


def without_kept(tasks: list[Task], kept: Kept, looked_into: Iterable[str] = ()) -> list[Task]:
    """Returns what is left to train where some curves are kept with the project.

    Args:
      tasks: a run before those that are forked from it.
      kept: the kept curves.
      looked_into: keys of runs whose models are needed, not only their curves.
    """
    models, left = set(looked_into), {}
    needed: dict[str, set[int]] = {}
    for task in reversed(tasks):  # a fork needs a checkpoint of the run that it goes on from
        key = task.run.key
        told = {
            seed
            for seed in task.seeds
            if key not in models and kept.shows(task.run, seed, task.reads, task.eval_every, task.final_evals)
        }
        seeds = (task.seeds - told) | needed.get(key, set())
        if seeds:
            left[key] = dataclasses.replace(task, seeds=seeds)
            if task.run.parent is not None:
                needed.setdefault(task.run.parent.run.key, set()).update(seeds)
    return [left[task.run.key] for task in tasks if task.run.key in left]


def _of_cell(cell: Cell, seeds: tuple[int, ...], shelf: Shelf | None) -> Iterator[tuple[Run, tuple[int, ...]]]:
    """Yields (run, seeds) that a cell needs now."""
    number = 0 if len(cell.runs) == 1 else chosen(shelf, cell) if shelf is not None else None
    if number is None:
        yield from ((trial_of(run), seeds[:1]) for run in cell.runs)
    else:
        yield cell.runs[number], seeds
    if cell.reference is not None:
        yield cell.reference, seeds


def _line(run: Run) -> list[Run]:
    """Returns a run after all that it comes from."""
    return [*(_line(run.parent.run) if run.parent else []), run]
