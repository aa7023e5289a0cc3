"""Where the runs of tables and figures are: below out_dir, by scale, by the hash of what decides their numbers."""

import dataclasses
import json
import pathlib
from typing import Any

from fedwin.runs.config import Config
from fedwin.runs.metrics_log import read_lines

from ..papers.trajectories import Checkpoint
from .plan import Selection, Task
from .shelf import home


def stem_of(item: Selection) -> str:
    """Returns what the files of a table or figure are called, without their endings."""
    return item.name.replace("/", "_")


@dataclasses.dataclass(frozen=True)
class Unit:
    """One run directory: a task for some of its seeds, which are trained one after the other.

    Attributes:
      task: the run and what is read off it.
      seeds: of this directory.
      directory: where it is.
      parent: the directory that it begins with a checkpoint of; None: none.
    """

    task: Task
    seeds: tuple[int, ...]
    directory: pathlib.Path
    parent: pathlib.Path | None = None

    @property
    def finished(self) -> bool:
        """Whether all its seeds have been trained."""
        return (self.directory / "summary.json").is_file()

    @property
    def ready(self) -> bool:
        """Whether what it begins with is there."""
        source = self.task.run.parent
        if source is None or self.parent is None:
            return True
        where = [self.parent / "checkpoints" / f"seed_{seed}" / str(source.round) for seed in self.seeds]
        return all(path.is_dir() for path in where)

    @property
    def begins_at(self) -> int:
        """The round that its training begins at: 0, or that of the fork."""
        source = self.task.run.parent
        return source.round if source is not None and source.part is None else 0

    def completed(self) -> list[int]:
        """Returns the rounds that each seed has behind it, those before a fork included."""
        if self.finished:
            return [self.task.run.num_rounds] * len(self.seeds)
        done = dict.fromkeys(self.seeds, self.begins_at)
        for line in read_lines(self.directory / "metrics.jsonl"):
            done[line["seed"]] = max(line["round"], self.begins_at)
        return list(done.values())

    def rounds_left(self) -> int:
        """Returns the rounds that are left to train, over all seeds."""
        return sum(self.task.run.num_rounds - done for done in self.completed())

    def config(self, **more: Any) -> Config:
        """Returns the Config of its run.

        Args:
          **more: operational fields such as data_dir.
        """
        fields = {**self.task.fields(), "seeds": list(self.seeds), "out_dir": str(self.directory)}
        if self.parent is not None and self.task.run.parent is not None:
            fields |= _begins(self.task.run.parent, self.parent, self.directory)
        return self.task.run.config(**fields, **more)


def _begins(source: Checkpoint, parent: pathlib.Path, directory: pathlib.Path) -> dict[str, str]:
    """Returns --fork_from or --init_from; a directory that has begun keeps its own, wherever it has been moved to."""
    name = "init_from" if source.part else "fork_from"
    text = f"{parent}@{source.round}" + (f":part={source.part}" if source.part else "")
    try:
        known = json.loads((directory / "config.json").read_text())["config"][name]
    except (OSError, ValueError, KeyError):
        known = ""
    return {name: known or text}


def _covers(folder: pathlib.Path, task: Task) -> bool:
    """Whether a directory shows all that is read off a task."""
    try:
        config = json.loads((folder / "config.json").read_text())["config"]
        dense = task.eval_every % config["eval_every"] == 0 and config["final_evals"] >= task.final_evals
        return dense and task.reads <= set(config["observe"])
    except (OSError, ValueError, KeyError, TypeError, ZeroDivisionError):
        return False


def _begun(task: Task, where: pathlib.Path) -> dict[int, tuple[pathlib.Path, tuple[int, ...]]]:
    """Returns seed -> (directory, all its seeds) of what has been begun of a task; finished directories win."""
    found: dict[int, tuple[pathlib.Path, tuple[int, ...]]] = {}
    folders = sorted((where / task.run.key).glob("*-seed*"), key=lambda p: (p / "summary.json").is_file())
    for folder in folders:
        if _covers(folder, task):
            seeds = tuple(int(seed) for seed in folder.name.partition("-seed")[2].split("-"))
            found |= dict.fromkeys(seeds, (folder, seeds))
    return found


def units(tasks: list[Task], out_dir: str | pathlib.Path, scale: str) -> list[Unit]:
    """Returns the directories that the tasks' seeds are trained in: those that were begun, and new ones for the rest.

    At paper scale every seed has a directory of its own, so that several processes share them; below that the seeds of
    a run share one compilation.

    Args:
      tasks: what is to be trained, a run before its forks.
      out_dir: what all runs are below.
      scale: smoke, trend or paper.
    """
    where = home(out_dir, scale)
    placed: dict[str, dict[int, Unit]] = {}
    found: list[Unit] = []
    for task in tasks:
        own = placed.setdefault(task.run.key, {})
        begun = _begun(task, where)
        for folder, seeds in dict.fromkeys(begun[seed] for seed in sorted(task.seeds) if seed in begun):
            _place(task, seeds, folder, placed, found)
        missing = [seed for seed in sorted(task.seeds) if seed not in own]
        for seeds in _grouped(task, missing, placed, alone=scale == "paper"):
            name = f"{task.reading}-seed{'-'.join(map(str, seeds))}"
            _place(task, seeds, where / task.run.key / name, placed, found)
    return found


def _grouped(task: Task, seeds: list[int], placed, alone: bool) -> list[tuple[int, ...]]:
    """Returns seeds in groups that are trained together: those that begin in the same directory."""
    if alone:
        return [(seed,) for seed in seeds]
    groups: dict[Any, list[int]] = {}
    for seed in seeds:
        parent = placed[task.run.parent.run.key][seed].directory if task.run.parent else None
        groups.setdefault(parent, []).append(seed)
    return [tuple(group) for group in groups.values()]


def _place(task: Task, seeds: tuple[int, ...], folder: pathlib.Path, placed, found: list[Unit]) -> None:
    parent = None
    if task.run.parent is not None:
        above = placed[task.run.parent.run.key]
        parent = above[seeds[0]].directory if seeds[0] in above else None
    unit = Unit(task, seeds, folder, parent)
    placed[task.run.key] |= dict.fromkeys(seeds, unit)
    found.append(unit)
