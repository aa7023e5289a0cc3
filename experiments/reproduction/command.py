"""Modes of `fedwin reproduce` besides training: list, dry run, verification, and the queue of paper-scale runs."""

import collections
import dataclasses
import random
import sys
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from fedwin.callbacks.scores import plain_table
from fedwin.errors import UserError
from fedwin.runs.config import Config
from fedwin.runs.schedule import Schedule
from fedwin.runs.timing import Timing

from .. import records
from ..cli.requirements import readable
from ..papers.catalogue import catalogue, item
from ..papers.items import AnyItem, Cell, Item, Sketch
from ..papers.trajectories import Run
from ..records import Record
from ..tables.formats import markdown_table
from .numbers import value
from .request import Request
from .results import Results, curves, machine, stored
from .runs import RunDirectory, Task, all_tasks, best_point, lineage, plan, required_runs, run_directories
from .work import in_all_processes, missing, work

# Largest difference of means, in percentage points, between machines or versions: training amplifies rounding.
TOLERANCE = 1.0
# Fields that determine how long a round takes; timed once for all runs that agree in these and the algorithm.
TIMING_FIELDS = (
    "dataset", "model", "clients_per_round", "num_clients", "local_epochs", "local_steps", "local_work", "batch_size",
    "augment",
)  # fmt: skip


# --list and --dry_run


def item_table(request: Request) -> str:
    """Returns a line per table and figure: cells, finished runs, seeds, cost, missing data."""
    scale, results = request.scale, request.results()
    rows = [("item", "cells", "runs done", "seeds", f"cost ({scale})", "data missing", "what it shows")]
    for each in catalogue().values():
        if isinstance(each, Sketch):
            rows.append((each.name, "-", "-", "-", each.why, "", each.title))
            continue
        runs = {run.key: run for run, _, _ in required_runs(each, scale)}
        seeds = len(each.seeds_at(scale))
        ended = lambda run: sum(c.final is not None or c.diverged for c in curves(results, run).values())
        done = f"{sum(ended(run) >= seeds for run in runs.values())}/{len(runs)}"
        cells = len(each.cells(scale)) if isinstance(each, Item) else len(each.runs)
        datasets = sorted({run.config().dataset for run in runs.values()})
        absent = " ".join(dataset for dataset in datasets if missing(dataset, request.data_dir, scale))
        rounds = sum(run.num_rounds for run in runs.values()) * seeds
        cost = each.cost if scale == "paper" else f"{rounds:,} rounds"
        rows.append((each.name, str(cells), done, str(seeds), cost, absent, each.titled(scale)))
    planned = len(plan(catalogue().values(), scale))
    return f"{plain_table(rows)}\n{len(rows) - 1} tables and figures, {planned} different runs at scale {scale}"


def timing_key(run: Run) -> tuple[Any, ...]:
    """Returns the settings that determine how long a round takes, the algorithm's name last."""
    config = run.config()
    return (*(getattr(config, name) for name in TIMING_FIELDS), config.algorithm.partition(":")[0])


class _Estimates:
    """Expected times of runs: of the stored results if this machine made them, or timed once per kind of run.

    Attributes:
      notes: why data are missing.
      from_stored: number of runs whose time is that of stored results.
    """

    def __init__(self, scale: str):
        self.stored, self.from_stored = stored(scale), 0
        self.timings: dict[tuple[Any, ...], Timing | str] = {}
        self.notes: dict[str, None] = {}

    def left(self, directory: RunDirectory, config: Config) -> float | str:
        """Returns the expected seconds left of a run, or why they are unknown."""
        if reason := missing(config.dataset, config.data_dir, self.stored.scale):
            self.notes[f"{config.dataset}: {reason}"] = None
            return "data missing"
        run = directory.task.run
        seconds = self.stored.seconds(run).values()
        if seconds and {record.stored.get("machine") for record in self.stored.records(run)} == {machine()}:
            self.from_stored += 1
            return sum(seconds) / len(seconds) * directory.rounds_left() / max(run.num_rounds - run.first_round, 1)
        if (key := timing_key(run)) not in self.timings:
            text = f"timing a few rounds of {config.algorithm} on {config.dataset} ({run.key}) ..."
            print(text, file=sys.stderr, flush=True)
            try:
                self.timings[key] = in_all_processes("measure", config).timing
            except UserError as error:
                self.timings[key] = str(error)
        timing = self.timings[key]
        return timing if isinstance(timing, str) else timing.expected(Schedule(config), directory.completed())


def execute(request: Request, items: list[AnyItem], cells: dict[str, list[Cell]]) -> None:
    """Executes a request, or prints its dry run, that of --afresh where all is stored; arguments: `Request.execute`."""
    if not request.dry_run:
        return request.execute(items, cells)
    request.check()
    directories = request.directories(items, cells)
    if line := request.of_stored(items, cells, directories):
        print(line)
        request = request if directories else dataclasses.replace(request, afresh=True)
    print(run_table(directories or request.directories(items, cells), request))


def run_table(directories: list[RunDirectory], request: Request) -> str:
    """Returns a line per run directory, with its expected time.

    The time of a run that this machine has trained, with other seeds, is that of the stored results; of other runs a
    few rounds of each kind are timed, and their results are discarded.
    """
    estimates = _Estimates(request.scale)
    rows = [("run", "algorithm", "data", "seeds", "rounds left", "time", "fills")]
    times: list[float | str] = []
    for directory in directories:
        task, rounds = directory.task, directory.rounds_left()
        config = task.run.config(**task.fields(), data_dir=request.data_dir)
        times.append(estimates.left(directory, config) if rounds else 0.0)
        left = times[-1] if isinstance(times[-1], str) else readable(times[-1]) if rounds else "done"
        fills = ", ".join(f"{name} ({count})" for name, count in sorted(task.uses.items())) or "forks"
        seeds = " ".join(map(str, directory.seeds))
        rows.append((task.run.key, config.algorithm, config.dataset, seeds, f"{rounds:,}", left, fills))
    unknown = sum(isinstance(time, str) for time in times)
    lines = [f"in all about {readable(sum(time for time in times if not isinstance(time, str)))}"]
    lines[0] += f", {unknown} run(s) unknown" if unknown else ""
    if estimates.from_stored:
        lines.append(f"times of {estimates.from_stored} run(s) are those of this machine's stored results")
    return "\n".join([plain_table(rows), *lines, *estimates.notes])


# --verify


def verify(items: Iterable[AnyItem], count: int, request: Request) -> str:
    """Trains random stored seeds again and compares all their evaluations; returns a table.

    The choice is a function of the stored results and the count. On the machine and with the versions of the stored run
    all evaluations are equal; elsewhere means must agree within TOLERANCE.

    Raises:
      UserError: nothing is stored, a run was rejected, or one does not agree.
    """
    found = candidates(items, request.scale)
    if not found:
        raise UserError(f"verify: no run of scale {request.scale} is stored for these items.")
    chosen = random.Random(0).sample(found, min(count, len(found)))
    rows = []
    for task, record, seed in chosen:
        name, (before, after), largest, verdict = compare(record, _trained_again(task, record, seed, request), seed)
        run = f"{record.label}, {record.config['dataset']}, {record.config['partition']}"
        rows.append((run, str(seed), name, f"{before:.2f}", f"{after:.2f}", f"{largest:.2f}", verdict))
    head = ("run", "seed", "read-out", "stored (%)", "again (%)", "largest difference of one evaluation", "")
    table = (
        f"{markdown_table(head, rows)}\n\nmean accuracy of the last evaluations of the read-out that differs most; "
        f"equal: all evaluations, as they are stored; agrees: all means within {TOLERANCE:g} point"
    )
    if apart := sum(row[-1] == "differs" for row in rows):
        print(table)
        raise UserError(f"verify: {apart} of {len(rows)} runs differ by more than {TOLERANCE:g} point.")
    return table


def candidates(items: Iterable[AnyItem], scale: str) -> list[tuple[Task, Record, int]]:
    """Returns (task, stored record, seed) of all stored seeds of the items' runs that measure an accuracy."""
    tasks, results = all_tasks(scale), stored(scale)
    return [
        (tasks[key], record, seed)
        for key in sorted({run.key for item in items for run, _, _ in required_runs(item, scale)})
        for record in results.records(tasks[key].run)
        for seed in record.seeds
        if any("accuracy" in line.get("model", {}) for line in record.lines)
    ]


def _trained_again(task: Task, record: Record, seed: int, request: Request) -> Record:
    """Trains one seed as it was stored, after its parents."""
    tasks = [
        dataclasses.replace(all_tasks(request.scale)[run.key], seeds={seed}, uses={"--verify": 1})
        for run in lineage(task.run)
    ]
    evaluated = {name: record.config[name] for name in ("eval_every", "final_evals")}
    tasks[-1] = dataclasses.replace(tasks[-1], reads=set(record.config["observe"]), **evaluated)
    directories = run_directories(tasks, request.out_dir / "verify" / request.scale, request.scale)
    if refused := work(directories, data_dir=request.data_dir, scale=request.scale):
        raise UserError(f"verify: {next(iter(refused.values()))}")
    return records.read(directories[-1].path)


def compare(stored: Record, again: Record, seed: int) -> tuple[str, tuple[float, float], float, str]:
    """Compares one seed of a stored record, whose numbers are rounded, with the same one trained again.

    Returns:
      The read-out whose means differ most; its accuracies (%) over the last evaluations, stored and again; the largest
      difference of two accuracies of a round and any read-out, in percentage points; and 'equal': all evaluations are,
      as they are stored, 'agrees': the means, within TOLERANCE, or 'differs'.
    """
    before, after = ({line["round"]: line for line in each.lines if line["seed"] == seed} for each in (stored, again))
    rounds = sorted(before.keys() & after.keys())
    # Round 0 is the untrained model.
    first = max(stored.config["num_rounds"] - stored.config["final_evals"], 0)
    last = [round for round in rounds if round > first] or rounds[-1:]
    names = [name for name, value in before[rounds[-1]].items() if isinstance(value, dict) and "accuracy" in value]
    accuracies = lambda lines, name, of: np.array([100 * lines[r][name]["accuracy"] for r in of if name in before[r]])
    gaps = [np.abs(accuracies(before, name, rounds) - accuracies(after, name, rounds)).max() for name in names]
    mean = lambda lines, name: float(accuracies(lines, name, last).mean())
    means = {name: (mean(before, name), mean(after, name)) for name in names}
    name = max(names, key=lambda name: abs(means[name][1] - means[name][0]))
    equal = before.keys() == after.keys() and max(gaps) < 1e-3
    agrees = abs(means[name][1] - means[name][0]) <= TOLERANCE
    return name, means[name], float(max(gaps)), "equal" if equal else "agrees" if agrees else "differs"


# --queue


class QueueStep(NamedTuple):
    """One step of the queue of paper-scale runs: rows and columns of a table by name, with seeds.

    `hours` is a guess for two CPU cores, used until runs of the kind are stored; None: it needs a GPU.
    """

    item: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    seeds: tuple[int, ...]
    hours: float | None

    def cells(self) -> list[Cell]:
        """Returns the cells that the step fills."""
        table = item(self.item)
        assert isinstance(table, Item)
        return [c for c in table.cells("paper") if c.row.name in self.rows and c.column.name in self.columns]


QUEUE = (
    QueueStep("ima/table1", ("fedavg", "fedadam"), ("fmnist_shards",), (2023,), 1.0),
    QueueStep("ghb/table3", ("fedavg", "fedhbm"), ("shakespeare_noniid",), (0,), 1.0),
    QueueStep("ima/table1", ("fednova", "fedyogi", "fedgma"), ("fmnist_shards",), (2023,), 2.0),
    QueueStep("ima/table1", ("fedavg", "fedadam", "fednova"), ("fmnist_dirichlet",), (2023,), 2.0),
    QueueStep("ima/table1", ("fedprox", "fedasam", "fedfa"), ("fmnist_shards",), (2023,), 4.0),
    QueueStep("ima/table1", ("fedprox", "fedasam", "fedfa", "fedyogi", "fedgma"), ("fmnist_dirichlet",), (2023,), 5.0),
    QueueStep("ghb/table3", ("scaffold", "fedavgm"), ("shakespeare_noniid",), (0,), 1.0),
    QueueStep("ghb/table3", ("fedavg", "fedhbm"), ("shakespeare_noniid",), (1, 2), 2.0),
    QueueStep("ima/table1", ("fedavg", "fedadam"), ("fmnist_shards",), (2024, 2025), 2.0),
    QueueStep("ghb/table4", ("mime", "fedavgm"), ("cifar10_noniid",), (0,), 9.5),
    QueueStep("ghb/table3", ("fedavg", "fedhbm", "scaffold"), ("cifar10_noniid",), (0,), None),
    QueueStep("wima/table2", ("fedavg", "scaffold"), ("cifar10_alpha0",), (0,), None),
    QueueStep("ghb/table10", ("fedavg", "fedhbm", "local_ghb"), ("cifar10_noniid",), (0,), None),
)


def progress(step: QueueStep, results: Results) -> tuple[int, int]:
    """Returns (cells with a final number in the stored results, cells) of a step."""
    numbers = [value(results, cell) for cell in step.cells()]
    done = sum(all(number.by_seed.get(seed) is not None for seed in step.seeds) for number in numbers)
    return done, len(numbers)


def duration(step: QueueStep, results: Results) -> str:
    """Returns how long a step takes: from the stored seconds of its runs, or of others of their kind, or a guess."""
    own_rounds = lambda run: max(run.num_rounds - run.first_round, 1)
    mean = lambda numbers: sum(numbers) / len(numbers)
    paces = collections.defaultdict[tuple[Any, ...], list[float]](list)  # of a kind of run, in seconds per round
    for key in results.packed:
        task = all_tasks("paper").get(key)
        if task is not None and (stored_seconds := results.seconds(task.run).values()):
            paces[timing_key(task.run)[:-1]].append(mean(stored_seconds) / own_rounds(task.run))
    total, measured = 0.0, True
    runs = {run.key: run for cell in step.cells() for run in lineage(cell.runs[best_point(results, cell) or 0])}
    for run in runs.values():
        seconds, similar = results.seconds(run), paces.get(timing_key(run)[:-1])
        if not seconds and similar is None:
            return "GPU" if step.hours is None else f"about {step.hours:g} h (a guess)"
        expected = mean(seconds.values()) if seconds else mean(similar) * own_rounds(run)
        measured = measured and set(step.seeds) <= seconds.keys()
        total += sum(seconds.get(seed, expected) for seed in step.seeds)
    return readable(total) if measured else f"about {readable(total)}"


def work_off(request: Request) -> None:
    """Executes the steps that are not done, in their order."""
    deadline = None if request.budget is None else time.monotonic() + request.budget
    for number, step in enumerate(QUEUE):
        done, cells = progress(step, stored("paper"))
        if cells and done == cells and not request.afresh:
            continue
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            return
        of_step = f"{step.item}, {', '.join(step.rows)} on {', '.join(step.columns)}"
        print(f"step {number + 1} of {len(QUEUE)}: {of_step}, {duration(step, stored('paper'))}")
        own = dataclasses.replace(request, scale="paper", seeds=step.seeds, budget=left)
        execute(own, [item(step.item)], {step.item: step.cells()})
