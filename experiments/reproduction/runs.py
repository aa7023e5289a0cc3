"""From tables and figures to the runs that they need, each once, and to the directories of these runs."""

import dataclasses
import functools
import math
import pathlib
from collections.abc import Iterable, Iterator
from typing import Any

from fedwin.engine.evaluate import VALIDATION_PREFIX
from fedwin.files import parse_json
from fedwin.runs.checkpoint import seed_checkpoints
from fedwin.runs.config import Config
from fedwin.runs.directory import hash_of
from fedwin.runs.metrics_log import read_lines

from ..cli.requirements import training
from ..papers.catalogue import catalogue
from ..papers.items import Analysis, AnyItem, Cell, Item, Sketch
from ..papers.trajectories import Checkpoint, Run
from ..records import DEFAULTS, Json
from .results import Results, covers, curves

# Rounds between checkpoints; a run that is forked has one at the fork, too.
CHECKPOINT_EVERY = 100
# Share of every client's examples that is held out while a grid is searched, with the first seed, and what is compared.
HELD_OUT = 0.1
HELD_OUT_METRIC = f"{VALIDATION_PREFIX}accuracy"


@dataclasses.dataclass
class Task:
    """A run and all that tables and figures read from it.

    Attributes:
      reads: observers' texts.
      final_evals: rounds at the end that are all evaluated.
      keep_rounds: rounds whose checkpoints are kept, for forks and figures.
      seeds: seeds to train.
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
        """A hash of the evaluated metrics and read-outs, for the name of the run's directory."""
        return hash_of([sorted(self.reads), self.eval_every, self.final_evals], size=3)

    def fields(self) -> Json:
        """Returns the fields of Config that select evaluations and checkpoints."""
        evaluations = {"observe": sorted(self.reads), "eval_every": self.eval_every, "final_evals": self.final_evals}
        return evaluations | {"checkpoint_every": CHECKPOINT_EVERY, "keep_rounds": sorted(self.keep_rounds)}


@functools.cache
def search_run(run: Run) -> Run:
    """Returns the run that evaluates a point of a grid: the same, but trained without the held-out examples."""
    fields = run.fields | {"val_fraction": run.fields.get("val_fraction") or HELD_OUT, "eval_val": True}
    parent = run.parent
    return Run(fields, None if parent is None else Checkpoint(search_run(parent.run), parent.round, parent.part))


def held_out_accuracies(results: Results, cell: Cell) -> list[float | None]:
    """Returns the mean held-out accuracy over the last rounds, for every point of a cell's grid.

    None stands for a run that has not finished, 0 for one that diverged.
    """
    accuracies: list[float | None] = []
    for run in cell.runs:
        by_seed = curves(results, search_run(run), cell.read, HELD_OUT_METRIC)
        curve = by_seed[min(by_seed)] if by_seed else None
        ended = curve is not None and (curve.diverged or curve.final is not None)
        accuracies.append((curve.final or 0.0) if curve is not None and ended else None)
    return accuracies


def best_point(results: Results, cell: Cell) -> int | None:
    """Returns the index of the run that counts for a cell: the best of its grid; None until all have been searched."""
    if len(cell.runs) == 1:
        return 0
    accuracies = held_out_accuracies(results, cell)
    if any(accuracy is None for accuracy in accuracies):
        return None
    return max(range(len(accuracies)), key=lambda index: accuracies[index] or 0.0)


def lineage(run: Run) -> list[Run]:
    """Returns a run after all of its ancestors."""
    return [*(lineage(run.parent.run) if run.parent else []), run]


def required_runs(item: AnyItem, scale: str) -> Iterator[tuple[Run, str, set[int]]]:
    """Yields (run, read-out, rounds whose checkpoints are kept) of all that an item may need.

    For a grid these are every point and its search run.
    """
    if isinstance(item, Item):
        for cell in item.cells(scale):
            for run in cell.runs:
                yield run, cell.read, set()
                if len(cell.runs) > 1:
                    yield search_run(run), cell.read, set()
            if cell.reference is not None:
                yield cell.reference, "", set()
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
            for each in reversed(lineage(run)):
                task = tasks.setdefault(each.key, Task(each))
                config = each.config()
                task.reads |= {*config.observe, *([read] if read else [])}
                task.eval_every = math.gcd(task.eval_every, config.eval_every)
                task.final_evals = max(task.final_evals, config.final_evals)
                task.keep_rounds |= {r for r in rounds if r < config.num_rounds}
                if each.parent is not None:
                    read, rounds = "", {each.parent.round}  # of the parent, the next one
    return tasks


def plan(
    items: Iterable[AnyItem],
    scale: str,
    seeds: Iterable[int] = (),
    cells: dict[str, list[Cell]] | None = None,
    results: Results | None = None,
) -> list[Task]:
    """Returns the tasks that fill tables and figures, a run before its forks.

    For a grid these are the search runs of its points, with the first seed, and the best point's run once it is known.

    Args:
      seeds: seeds instead of every item's own; empty: those.
      cells: name of an item -> those of its cells that are requested; items without an entry: all cells.
      results: where search runs of grids are read; None: none has been trained.
    """
    wanted: dict[str, Task] = {}
    for item in items:
        if isinstance(item, Sketch):
            continue
        own = tuple(dict.fromkeys(seeds)) or item.seeds_at(scale)
        runs: list[tuple[Run, tuple[int, ...]]] = []
        if isinstance(item, Analysis):
            runs = [(run, own) for run, _, _ in required_runs(item, scale)]
        else:
            for cell in (cells or {}).get(item.name, item.cells(scale)):
                index = 0 if len(cell.runs) == 1 else best_point(results, cell) if results is not None else None
                runs += [(search_run(run), own[:1]) for run in cell.runs if len(cell.runs) > 1]
                runs += [] if index is None else [(cell.runs[index], own)]
                runs += [(cell.reference, own)] if cell.reference is not None else []
        for run, run_seeds in runs:
            for ancestor in lineage(run):
                blank = dataclasses.replace(all_tasks(scale)[ancestor.key], seeds=set(), uses={})
                wanted.setdefault(ancestor.key, blank).seeds |= set(run_seeds)
            wanted[run.key].uses[item.name] = wanted[run.key].uses.get(item.name, 0) + 1
    return list(wanted.values())


def without_stored(tasks: list[Task], stored: Results, analyzed: Iterable[str] = ()) -> list[Task]:
    """Returns the tasks that have to be trained because their curves are not stored with the project.

    Args:
      analyzed: keys of runs whose models are needed, not only their curves.
    """
    models, remaining = set(analyzed), {}
    needed: dict[str, set[int]] = {}
    for task in reversed(tasks):  # a fork needs a checkpoint of its parent
        key = task.run.key
        covered = {
            seed
            for record in (() if key in models else stored.records(task.run))
            if covers(record.config, task.fields())
            for seed in record.seeds
        }
        seeds = (task.seeds - covered) | needed.get(key, set())
        if seeds:
            remaining[key] = dataclasses.replace(task, seeds=seeds)
            if task.run.parent is not None:
                needed.setdefault(task.run.parent.run.key, set()).update(seeds)
    return [remaining[task.run.key] for task in tasks if task.run.key in remaining]


@dataclasses.dataclass(frozen=True)
class RunDirectory:
    """A task for some of its seeds, which are trained in one directory.

    Attributes:
      parent: directory of the run whose checkpoint it starts from; None: none.
      seeds_at_once: number of seeds that train vmapped in one program; 1: one seed after another.
    """

    task: Task
    seeds: tuple[int, ...]
    path: pathlib.Path
    parent: pathlib.Path | None = None
    seeds_at_once: int = 1

    @property
    def label(self) -> str:
        """Its algorithm, and up to four tables and figures that read it."""
        return f"{self.task.run.config().algorithm} for {', '.join(sorted(self.task.uses)[:4])}"

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
        return all(checkpoint.round in seed_checkpoints(self.parent, seed).rounds() for seed in self.seeds)

    def completed(self) -> list[int]:
        """Returns the number of completed rounds of each seed, those before a fork included; of ended ones all."""
        run = self.task.run
        if self.finished:
            return [run.num_rounds] * len(self.seeds)
        done = {line["seed"]: line["round"] for line in read_lines(self.path / "metrics.jsonl")}
        on = training(self.seeds, self.seeds_at_once, done)
        return [max(done.get(seed, 0), run.first_round) if seed in on else run.num_rounds for seed in self.seeds]

    def rounds_left(self) -> int:
        """Returns the number of rounds left to train, over all seeds."""
        return sum(self.task.run.num_rounds - completed for completed in self.completed())

    def config(self, data_dir: str = "") -> Config:
        """Returns the Config of its run."""
        fields = {**self.task.fields(), "seeds": list(self.seeds), "out_dir": str(self.path), "data_dir": data_dir}
        if self.seeds_at_once > 1:
            fields |= {"seeds_at_once": self.seeds_at_once, "strategy": "vmapped"}
        checkpoint = self.task.run.parent
        if self.parent is not None and checkpoint is not None:
            name = "init_from" if checkpoint.part else "fork_from"
            text = f"{self.parent}@{checkpoint.round}" + (f":part={checkpoint.part}" if checkpoint.part else "")
            # A directory in use keeps its own, even if the parent has been moved.
            fields[name] = _config_of(self.path).get(name) or text
        return self.task.run.config(**fields)


def _config_of(directory: pathlib.Path) -> Json:
    """Returns the recorded fields of Config of a run directory; {} if it has none."""
    try:
        return DEFAULTS | parse_json((directory / "config.json").read_bytes())["config"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def run_directories(tasks: list[Task], folder: pathlib.Path, scale: str, seeds_at_once: int = 1) -> list[RunDirectory]:
    """Returns the directories in which the tasks' seeds are trained: existing ones, and new ones for the other seeds.

    At paper scale every seed has a separate directory, so that several processes share the work; at smaller scales
    the seeds of a run share one compilation.
    """
    by_key: dict[str, dict[int, RunDirectory]] = {}
    for task in tasks:
        assigned = by_key.setdefault(task.run.key, {})
        parents = by_key[task.run.parent.run.key] if task.run.parent is not None else {}
        parent_of = lambda seed: parents[seed].path if seed in parents else None
        existing: dict[int, RunDirectory] = {}
        for path in sorted((folder / task.run.key).glob("*-seed*"), key=lambda path: (path / "summary.json").is_file()):
            config = _config_of(path)
            if config and covers(config, task.fields()):  # finished ones come last and take precedence
                seeds = tuple(int(seed) for seed in path.name.partition("-seed")[2].split("-"))
                at_once = config["seeds_at_once"]  # it resumes as it was started
                existing |= dict.fromkeys(seeds, RunDirectory(task, seeds, path, parent_of(seeds[0]), at_once))
        for unit in {id(existing[seed]): existing[seed] for seed in sorted(task.seeds & existing.keys())}.values():
            assigned |= dict.fromkeys(unit.seeds, unit)
        groups: dict[Any, list[int]] = {}  # seeds that share a directory start from the same one
        for seed in sorted(task.seeds - assigned.keys()):
            groups.setdefault(seed if scale == "paper" else parent_of(seed), []).append(seed)
        for group in groups.values():
            path = folder / task.run.key / f"{task.readout_hash}-seed{'-'.join(map(str, group))}"
            at_once = min(seeds_at_once, len(group))
            new = RunDirectory(task, tuple(group), path, parent_of(group[0]), at_once)
            assigned |= dict.fromkeys(group, new)
    return [unit for of_run in by_key.values() for unit in {id(each): each for each in of_run.values()}.values()]
