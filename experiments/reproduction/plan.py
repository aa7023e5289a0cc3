"""From tables and figures to the runs that they need, each once."""

import dataclasses
import functools
import math
from collections.abc import Iterable, Iterator

from fedwin.runs.identity import hash_of

from ..papers.analyses import Analysis, Sketch
from ..papers.catalogue import catalogue
from ..papers.items import Cell, Item
from ..papers.observing import MODEL
from ..papers.trajectories import Run

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
    """Yields (run, read-out) of all that a cell needs."""
    for run in cell.runs:
        yield run, cell.read
        if run.source is not None:
            yield run.source.run, ""
    if cell.reference is not None:
        yield cell.reference, ""


def needs(item: Selection, scale: str, cells: Iterable[Cell] | None = None) -> Iterator[tuple[Run, str, set[int]]]:
    """Yields (run, read-out, rounds whose checkpoints must stay) of all that an item needs.

    Args:
      item: a table or figure.
      scale: smoke, trend or paper.
      cells: those of its cells that are asked for; None: all.
    """
    if isinstance(item, Item):
        for cell in item.cells(scale) if cells is None else cells:
            for run, read in runs_of(cell):
                yield run, read, set()
    elif isinstance(item, Analysis):
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
    if run.source is not None:
        _add(tasks, run.source.run, "", {run.source.round})
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
    items: Iterable[Selection], scale: str, seeds: Iterable[int] = (), cells: dict[str, list[Cell]] | None = None
) -> list[Task]:
    """Returns the tasks that fill tables and figures, a run before those that are forked from it.

    Args:
      items: tables and figures.
      scale: smoke, trend or paper.
      seeds: instead of every item's own.
      cells: name of an item -> those of its cells that are asked for; without a name: all.
    """
    wanted: dict[str, Task] = {}
    for item in items:
        own = set(seeds) or set(seeds_of(item, scale))
        for run, _, _ in needs(item, scale, (cells or {}).get(item.name)):
            for each in _line(run):
                task = wanted.setdefault(
                    each.key, dataclasses.replace(everything(scale)[each.key], seeds=set(), uses={})
                )
                task.seeds |= own
            wanted[run.key].uses[item.name] = wanted[run.key].uses.get(item.name, 0) + 1
    return list(wanted.values())


def _line(run: Run) -> list[Run]:
    """Returns a run after all that it comes from."""
    return [*(_line(run.source.run) if run.source else []), run]
