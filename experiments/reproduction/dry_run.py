"""Lists tables and figures with their progress (--list), and runs with their expected hours (--dry_run)."""

import functools

from fedwin import data
from fedwin.errors import UserError
from fedwin.runs.config import Config
from fedwin.runs.dry_run import Timing
from fedwin.runs.schedule import Schedule

from ..cli.requirements import disk_line, memory_line
from ..papers.catalogue import catalogue
from ..papers.items import AnyItem, Item, Sketch
from ..papers.trajectories import Run
from ..tables.formats import plain_table
from . import process_commands
from .plan import RunDirectory, plan, required_runs, seeds_of
from .store import ResultStore, curves
from .work import readable

# Fields that determine how long a round takes; timed once for all runs that agree in these.
TIMING_FIELDS = ("dataset", "model", "clients_per_round", "num_clients", "local_epochs", "batch_size", "augment")


@functools.cache
def missing_data(dataset: str, data_dir: str) -> str:
    """Returns why a data set can't be read, as fedwin's error says it; '' if it can be read.

    Args:
      dataset: its text, as in --dataset.
      data_dir: folder of its files.
    """
    try:
        data.load(dataset, data_dir)
    except UserError as error:
        return str(error)
    return ""


def _item_row(item: AnyItem, scale: str, store: ResultStore, data_dir: str) -> tuple[str, ...]:
    """Returns an item's row of the table of `--list`."""
    if isinstance(item, Sketch):
        return (item.name, "-", "-", "-", item.why, "", item.title)
    runs = {run.key: run for run, _, _ in required_runs(item, scale)}
    seeds = seeds_of(item, scale)
    done = sum(_finished_seeds(store, run) >= len(seeds) for run in runs.values())
    cells = len(item.cells(scale)) if isinstance(item, Item) else len(item.runs)
    datasets = sorted({run.config().dataset for run in runs.values()})
    missing = [dataset for dataset in datasets if missing_data(dataset, data_dir)]
    cost = item.cost if scale == "paper" else f"{sum(run.num_rounds for run in runs.values()) * len(seeds):,} rounds"
    return (item.name, str(cells), f"{done}/{len(runs)}", str(len(seeds)), cost, " ".join(missing), item.title)


def _finished_seeds(store: ResultStore, run: Run) -> int:
    """Returns how many seeds of a run have finished or diverged."""
    return sum(curve.final is not None or curve.diverged for curve in curves(store, run).values())


def item_table(scale: str, store: ResultStore, data_dir: str) -> str:
    """Returns a line per table and figure: cells, finished runs, seeds, cost, missing data.

    Args:
      scale: smoke, trend or paper.
      store: where records are read.
      data_dir: folder of the data sets' files.
    """
    head = ("item", "cells", "runs done", "seeds", f"cost ({scale})", "data missing", "what it shows")
    rows = [head, *(_item_row(item, scale, store, data_dir) for item in catalogue().values())]
    runs = len(plan(catalogue().values(), scale))
    return f"{plain_table(rows)}\n{len(rows) - 1} tables and figures, {runs} different runs at scale {scale}"


def timing_key(run: Run) -> tuple:
    """Returns what determines how long a round takes."""
    config = run.config()
    return (*(getattr(config, name) for name in TIMING_FIELDS), config.algorithm.partition(":")[0])


def seconds(config: Config, timing: Timing, completed: list[int]) -> float:
    """Returns the expected seconds left, over all seeds.

    Args:
      config: of the run.
      timing: measured on this machine.
      completed: rounds of each seed.
    """
    schedule = Schedule(config.num_rounds, config.clients_per_round, config.eval_every, config.final_evals, 0)
    return timing.expected(schedule, completed)


class _Estimates:
    """Timings and requirements of runs, measured once per kind of run.

    Args:
      data_dir: folder of the data sets' files.
    """

    def __init__(self, data_dir: str):
        self.data_dir = data_dir
        self.timings: dict[tuple, Timing | str] = {}
        self.requirements: list[str] = []
        self.missing: dict[str, str] = {}

    def left(self, directory: RunDirectory, config: Config) -> float | str:
        """Returns the expected seconds left of a run, or why they are unknown."""
        reason = missing_data(config.dataset, config.data_dir)
        if reason:
            self.missing[config.dataset] = reason
            return "data missing"
        timing = self._timing(directory.task.run, config)
        return timing if isinstance(timing, str) else seconds(config, timing, directory.completed())

    def _timing(self, run: Run, config: Config) -> Timing | str:
        key = timing_key(run)
        if key not in self.timings:
            try:
                required = process_commands.estimate(config)
                self.requirements += [f"{run.key}: {line}" for line in (memory_line(required), disk_line(required))]
                self.timings[key] = required.timing
            except UserError as error:
                self.timings[key] = str(error)
        return self.timings[key]


def run_table(directories: list[RunDirectory], data_dir: str) -> str:
    """Returns a line per run directory, and the memory and disk space that every kind of run requires.

    A few rounds of each kind are timed; their results are discarded.

    Args:
      directories: of the planned runs.
      data_dir: folder of the data sets' files.
    """
    estimates = _Estimates(data_dir)
    rows = [("run", "algorithm", "data", "seeds", "rounds left", "time", "fills")]
    total, unknown = 0.0, 0
    for directory in directories:
        task = directory.task
        config = task.run.config(**task.fields(), data_dir=data_dir)
        rounds = directory.rounds_left()
        left = estimates.left(directory, config) if rounds else "done"
        if isinstance(left, float):
            total, left = total + left, readable(left)
        elif rounds:
            unknown += 1
        fills = ", ".join(f"{name} ({count})" for name, count in sorted(task.uses.items())) or "forks"
        seeds = " ".join(map(str, directory.seeds))
        rows.append((task.run.key, config.algorithm, config.dataset, seeds, f"{rounds:,}", left, fills))
    lines = [plain_table(rows), f"in all about {readable(total)}" + (f", {unknown} run(s) unknown" if unknown else "")]
    lines += estimates.requirements + [f"{dataset}: {reason}" for dataset, reason in estimates.missing.items()]
    return "\n".join(lines)
