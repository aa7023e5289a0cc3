"""Plan: from tables and figures to the runs that they need, each once, and to the directories of these runs."""

import dataclasses
import functools
import json
import math
import pathlib
from collections.abc import Iterable, Iterator
from typing import Any

from fedwin.runs.config import Config
from fedwin.runs.fingerprint import hash_of
from fedwin.runs.metrics_log import read_lines

from ..papers.catalogue import catalogue
from ..papers.items import Analysis, AnyItem, Cell, Item, Sketch
from ..papers.trajectories import Checkpoint, Run
from .store import ResultStore, StoredResults, record_to_store, scale_folder
from .tune import best_point, search_run

# Rounds between checkpoints; a run that is forked has one at the fork, too.
CHECKPOINT_EVERY = 100


@dataclasses.dataclass
class Task:
    """A run and all that tables and figures read from it.

    Attributes:
      run: the trajectory.
      reads: observers' texts.
      eval_every: rounds between evaluations.
      final_evals: rounds at the end that are all evaluated.
      keep_rounds: rounds whose checkpoints are kept, for forks and figures.
      seeds: to train.
      uses: name of a table or figure -> how many of its cells read this run.
    """

    run: Run
    reads: set[str] = dataclasses.field(default_factory=set)
    eval_every: int = 0
    final_evals: int = 0
    keep_rounds: set[int] = dataclasses.field(default_factory=set)
    seeds: set[int] = dataclasses.field(default_factory=set)
    uses: dict[str, int] = dataclasses.field(default_factory=dict)

    @property
    def readout_hash(self) -> str:
        """Returns a hash of the evaluated metrics and read-outs, for the name of the run's directory."""
        return hash_of([sorted(self.reads), self.eval_every, self.final_evals], size=3)

    def fields(self) -> dict[str, Any]:
        """Returns the fields of Config that select evaluations and checkpoints."""
        return {
            "observe": sorted(self.reads),
            "eval_every": self.eval_every,
            "final_evals": self.final_evals,
            "checkpoint_every": CHECKPOINT_EVERY,
            "keep_rounds": sorted(self.keep_rounds),
        }


def _cell_runs(cell: Cell) -> Iterator[tuple[Run, str]]:
    """Yields (run, read-out) of all that a cell may need: for a grid, every point and its search run."""
    for run in cell.runs:
        yield run, cell.read
        if len(cell.runs) > 1:
            yield search_run(run), cell.read
    if cell.reference is not None:
        yield cell.reference, ""


def required_runs(item: AnyItem, scale: str) -> Iterator[tuple[Run, str, set[int]]]:
    """Yields (run, read-out, rounds whose checkpoints are kept) of all that an item needs.

    Args:
      item: a table or figure.
      scale: smoke, trend or paper.
    """
    if isinstance(item, Item):
        for cell in item.cells(scale):
            for run, read in _cell_runs(cell):
                yield run, read, set()
    elif isinstance(item, Analysis) and item.kind != "labels":  # histograms need no model
        for run in item.trajectories(scale).values():
            yield run, "", set(item.checkpoints(scale))


@functools.cache
def all_tasks(scale: str) -> dict[str, Task]:
    """Returns key of a run -> task, of the entire catalogue at a scale.

    The evaluations of a run are decided here, so a run that was trained for one table serves all others.
    """
    tasks: dict[str, Task] = {}
    for item in catalogue().values():
        for run, read, rounds in required_runs(item, scale):
            _add(tasks, run, read, rounds)
    return tasks


def _add(tasks: dict[str, Task], run: Run, read: str, rounds: set[int]) -> None:
    if run.parent is not None:
        _add(tasks, run.parent.run, "", {run.parent.round})
    task = tasks.setdefault(run.key, Task(run))
    config = run.config()
    if read:
        task.reads.add(read)
    task.eval_every = math.gcd(task.eval_every, config.eval_every)
    task.final_evals = max(task.final_evals, config.final_evals)
    task.keep_rounds |= {r for r in rounds if r < config.num_rounds}


def seeds_of(item: AnyItem, scale: str) -> tuple[int, ...]:
    """Returns an item's own seeds at a scale."""
    return () if isinstance(item, Sketch) else item.seeds_at(scale)


def plan(
    items: Iterable[AnyItem],
    scale: str,
    seeds: Iterable[int] = (),
    cells: dict[str, list[Cell]] | None = None,
    store: ResultStore | None = None,
) -> list[Task]:
    """Returns the tasks that fill tables and figures, a run before its forks.

    For a grid whose best point is not known yet these are the search runs of its points, with the first seed; later the
    best point's run.

    Args:
      items: tables and figures.
      scale: smoke, trend or paper.
      seeds: instead of every item's own.
      cells: name of an item -> those of its cells that are requested; items without an entry: all cells.
      store: where search runs of grids are read; None: none has been trained.
    """
    wanted: dict[str, Task] = {}
    for item in items:
        item_seeds = tuple(dict.fromkeys(seeds)) or seeds_of(item, scale)
        if isinstance(item, Item):
            requested = (cells or {}).get(item.name, item.cells(scale))
            runs = [pair for cell in requested for pair in _current_runs(cell, item_seeds, store)]
        else:
            runs = [(run, item_seeds) for run, _, _ in required_runs(item, scale)]
        for run, run_seeds in runs:
            for ancestor in lineage(run):
                blank = dataclasses.replace(all_tasks(scale)[ancestor.key], seeds=set(), uses={})
                wanted.setdefault(ancestor.key, blank).seeds |= set(run_seeds)
            wanted[run.key].uses[item.name] = wanted[run.key].uses.get(item.name, 0) + 1
    return list(wanted.values())


def without_stored(tasks: list[Task], stored: StoredResults, analysed: Iterable[str] = ()) -> list[Task]:
    """Returns the tasks that have to be trained because their curves are not stored with the project.

    Args:
      tasks: a run before its forks.
      stored: the stored curves.
      analyzed: keys of runs whose models are needed, not only their curves.
    """
    models, remaining = set(analysed), {}
    needed: dict[str, set[int]] = {}
    for task in reversed(tasks):  # a fork needs a checkpoint of its parent
        key = task.run.key
        covered = {
            seed
            for seed in task.seeds
            if key not in models and stored.covers(task.run, seed, task.reads, task.eval_every, task.final_evals)
        }
        seeds = (task.seeds - covered) | needed.get(key, set())
        if seeds:
            remaining[key] = dataclasses.replace(task, seeds=seeds)
            if task.run.parent is not None:
                needed.setdefault(task.run.parent.run.key, set()).update(seeds)
    return [remaining[task.run.key] for task in tasks if task.run.key in remaining]


def _current_runs(cell: Cell, seeds: tuple[int, ...], store: ResultStore | None) -> Iterator[tuple[Run, tuple]]:
    """Yields (run, seeds) that a cell needs now."""
    index = 0 if len(cell.runs) == 1 else best_point(store, cell) if store is not None else None
    if index is None:
        yield from ((search_run(run), seeds[:1]) for run in cell.runs)
    else:
        yield cell.runs[index], seeds
    if cell.reference is not None:
        yield cell.reference, seeds


def lineage(run: Run) -> list[Run]:
    """Returns a run after all of its ancestors."""
    return [*(lineage(run.parent.run) if run.parent else []), run]


@dataclasses.dataclass(frozen=True)
class RunDirectory:
    """A task for some of its seeds, which are trained in one directory.

    Attributes:
      task: the run and the curves read from it.
      seeds: of this directory.
      path: of the directory.
      parent: directory of the run whose checkpoint it starts from; None: none.
      seeds_at_once: number of seeds that train vmapped in one program; 1: one seed after another.
    """

    task: Task
    seeds: tuple[int, ...]
    path: pathlib.Path
    parent: pathlib.Path | None = None
    seeds_at_once: int = 1

    @property
    def finished(self) -> bool:
        """Whether all its seeds have been trained."""
        return (self.path / "summary.json").is_file()

    @property
    def ready(self) -> bool:
        """Whether the checkpoints that it starts from exist."""
        checkpoint = self.task.run.parent
        if checkpoint is None or self.parent is None:
            return True
        folders = [self.parent / "checkpoints" / f"seed_{seed}" / str(checkpoint.round) for seed in self.seeds]
        return all(folder.is_dir() for folder in folders)

    @property
    def first_round(self) -> int:
        """The round at which training starts: 0, or that of the fork."""
        checkpoint = self.task.run.parent
        return checkpoint.round if checkpoint is not None and checkpoint.part is None else 0

    def completed(self) -> list[int]:
        """Returns the number of completed rounds of each seed, those before a fork included."""
        if self.finished:
            return [self.task.run.num_rounds] * len(self.seeds)
        completed = dict.fromkeys(self.seeds, self.first_round)
        for line in read_lines(self.path / "metrics.jsonl"):
            completed[line["seed"]] = max(line["round"], self.first_round)
        return list(completed.values())

    def rounds_left(self) -> int:
        """Returns the number of rounds left to train, over all seeds."""
        return sum(self.task.run.num_rounds - completed for completed in self.completed())

    def config(self, **more: Any) -> Config:
        """Returns the Config of its run.

        Args:
          **more: operational fields such as data_dir.
        """
        fields = {**self.task.fields(), "seeds": list(self.seeds), "out_dir": str(self.path)}
        if self.seeds_at_once > 1:
            fields |= {"seeds_at_once": self.seeds_at_once, "strategy": "vmapped"}
        if self.parent is not None and self.task.run.parent is not None:
            fields |= _start_fields(self.task.run.parent, self.parent, self.path)
        return self.task.run.config(**fields, **more)

    def add_to(self, stored: StoredResults) -> bool:
        """Stores its curves with the project; returns whether it is finished and they were not stored already."""
        if not self.finished:
            return False
        return stored.add(record_to_store(self.task.run, self.path))


def _start_fields(checkpoint: Checkpoint, parent: pathlib.Path, directory: pathlib.Path) -> dict[str, str]:
    """Returns --fork_from or --init_from; a directory in use keeps its own, even if the parent has been moved."""
    name = "init_from" if checkpoint.part else "fork_from"
    text = f"{parent}@{checkpoint.round}" + (f":part={checkpoint.part}" if checkpoint.part else "")
    try:
        recorded = json.loads((directory / "config.json").read_text())["config"][name]
    except (OSError, ValueError, KeyError):
        recorded = ""
    return {name: recorded or text}


def _recorded_seeds_at_once(directory: pathlib.Path) -> int:
    """Returns how many seeds train at once in a directory in use: it resumes as it was started."""
    try:
        return int(json.loads((directory / "config.json").read_text())["config"].get("seeds_at_once", 1))
    except (OSError, ValueError, KeyError, TypeError):
        return 1


def _covers(folder: pathlib.Path, task: Task) -> bool:
    """Whether a directory's evaluations include all that is read from a task."""
    try:
        config = json.loads((folder / "config.json").read_text())["config"]
        dense = task.eval_every % config["eval_every"] == 0
        dense = dense and (config["eval_every"] == 1 or config["final_evals"] >= task.final_evals)
        return dense and task.reads <= set(config["observe"])
    except (OSError, ValueError, KeyError, TypeError, ZeroDivisionError):
        return False


def _existing(task: Task, folder: pathlib.Path) -> dict[int, tuple[pathlib.Path, tuple[int, ...]]]:
    """Returns seed -> (directory, all its seeds) of a task's existing directories; finished ones take precedence."""
    existing: dict[int, tuple[pathlib.Path, tuple[int, ...]]] = {}
    directories = sorted((folder / task.run.key).glob("*-seed*"), key=lambda p: (p / "summary.json").is_file())
    for directory in directories:
        if _covers(directory, task):
            seeds = tuple(int(seed) for seed in directory.name.partition("-seed")[2].split("-"))
            existing |= dict.fromkeys(seeds, (directory, seeds))
    return existing


def run_directories(
    tasks: list[Task], out_dir: str | pathlib.Path, scale: str, seeds_at_once: int = 1
) -> list[RunDirectory]:
    """Returns the directories in which the tasks' seeds are trained: existing ones, and new ones for the other seeds.

    At paper scale every seed has a separate directory, so that several processes share the work; at smaller scales
    the seeds of a run share one compilation.

    Args:
      tasks: runs to train, each before its forks.
      out_dir: the folder above all runs.
      scale: smoke, trend or paper.
      seeds_at_once: number of seeds of a new directory that train vmapped.
    """
    folder = scale_folder(out_dir, scale)
    by_key: dict[str, dict[int, RunDirectory]] = {}
    directories: list[RunDirectory] = []

    def assign(task: Task, seeds: tuple[int, ...], path: pathlib.Path, seeds_at_once: int) -> None:
        parent = None
        if task.run.parent is not None:
            parents = by_key[task.run.parent.run.key]
            parent = parents[seeds[0]].path if seeds[0] in parents else None
        directory = RunDirectory(task, seeds, path, parent, seeds_at_once)
        by_key[task.run.key] |= dict.fromkeys(seeds, directory)
        directories.append(directory)

    for task in tasks:
        assigned = by_key.setdefault(task.run.key, {})
        existing = _existing(task, folder)
        for path, seeds in dict.fromkeys(existing[seed] for seed in sorted(task.seeds) if seed in existing):
            assign(task, seeds, path, _recorded_seeds_at_once(path))
        missing = [seed for seed in sorted(task.seeds) if seed not in assigned]
        for seeds in _grouped(task, missing, by_key, separate=scale == "paper"):
            name = f"{task.readout_hash}-seed{'-'.join(map(str, seeds))}"
            assign(task, seeds, folder / task.run.key / name, min(seeds_at_once, len(seeds)))
    return directories


def _grouped(
    task: Task, seeds: list[int], by_key: dict[str, dict[int, RunDirectory]], separate: bool
) -> list[tuple[int, ...]]:
    """Returns the seeds in groups that share a directory: those that start from the same parent directory."""
    if separate:
        return [(seed,) for seed in seeds]
    groups: dict[Any, list[int]] = {}
    for seed in seeds:
        parent = by_key[task.run.parent.run.key][seed].path if task.run.parent else None
        groups.setdefault(parent, []).append(seed)
    return [tuple(group) for group in groups.values()]
