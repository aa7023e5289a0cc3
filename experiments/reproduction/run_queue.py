"""Queue of paper-scale runs, the most informative first; `fedwin reproduce --queue` works through it.

`fedwin reproduce --queue --data_dir=DIR --budget=8h --keep` resumes with the first step that is not stored yet.
"""

import collections
import dataclasses
import functools
import time
from typing import NamedTuple

from ..papers.catalogue import item
from ..papers.items import Cell, Item
from ..papers.trajectories import Run
from . import dry_run
from .plan import all_tasks, lineage
from .request import Request
from .store import StoredResults
from .tune import best_point
from .values import value
from .work import readable


class QueueStep(NamedTuple):
    """One step of the queue.

    Attributes:
      item: name of a table.
      rows: names of its rows.
      columns: names of its columns.
      seeds: to train.
      hours: a guess for two CPU cores, used until runs of the kind are stored; None: it needs a GPU.
    """

    item: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    seeds: tuple[int, ...]
    hours: float | None


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
    QueueStep("ghb/table4", ("fedavg", "fedhbm"), ("cifar10_noniid",), (0,), 14.0),
    QueueStep("ghb/table3", ("fedavg", "fedhbm", "scaffold"), ("cifar10_noniid",), (0,), None),
    QueueStep("wima/table2", ("fedavg", "scaffold"), ("cifar10_alpha0",), (0,), None),
    QueueStep("ghb/table10", ("fedavg", "fedhbm", "local_ghb"), ("cifar10_noniid",), (0,), None),
)


def _cells(step: QueueStep) -> list[Cell]:
    """Returns the cells that a step fills."""
    table = item(step.item)
    if not isinstance(table, Item):
        return []
    return [c for c in table.cells("paper") if c.row.name in step.rows and c.column.name in step.columns]


def progress(step: QueueStep) -> tuple[int, int]:
    """Returns (cells with a final number in the stored results, cells) of a step."""
    cells = _cells(step)
    numbers = [value(StoredResults("paper"), cell, "paper") for cell in cells]
    done = sum(all(number.by_seed.get(seed) is not None for seed in step.seeds) for number in numbers)
    return done, len(cells)


@functools.cache
def _round_seconds() -> dict[tuple, float]:
    """Returns kind of run, of any algorithm -> mean stored seconds per round, of the paper-scale results."""
    stored, paces = StoredResults("paper"), collections.defaultdict[tuple, list[float]](list)
    for key in dict.fromkeys(name.partition("-seed")[0] for name in stored.names()):
        task = all_tasks("paper").get(key)
        seconds = dry_run.stored_seconds(stored, task.run) if task is not None else None
        if task is not None and seconds is not None:
            paces[dry_run.timing_key(task.run)[:-1]].append(seconds / _own_rounds(task.run))
    return {kind: sum(each) / len(each) for kind, each in paces.items()}


def _own_rounds(run: Run) -> int:
    """Returns the rounds that a run trains, after the fork."""
    forked = run.parent is not None and run.parent.part is None
    return max(run.num_rounds - (run.parent.round if forked and run.parent is not None else 0), 1)


def duration(step: QueueStep) -> str:
    """Returns how long a step takes: from the stored seconds of its runs, or of others of their kind, or a guess."""
    stored, total, measured = StoredResults("paper"), 0.0, True
    runs = {run.key: run for cell in _cells(step) for run in lineage(cell.runs[best_point(stored, cell) or 0])}
    for run in runs.values():
        pace = _round_seconds().get(dry_run.timing_key(run)[:-1])
        similar = dry_run.stored_seconds(stored, run)
        similar = pace * _own_rounds(run) if similar is None and pace is not None else similar
        for seed in step.seeds:
            seconds = dry_run.stored_seconds(stored, run, seed)
            measured = measured and seconds is not None
            seconds = similar if seconds is None else seconds
            if seconds is None:
                return "GPU" if step.hours is None else f"about {step.hours:g} h (a guess)"
            total += seconds
    return readable(total) if measured else f"about {readable(total)}"


def work_off(request: Request) -> None:
    """Executes the steps that are not done, in their order.

    Args:
      request: directories, budget, and whether finished curves are stored.
    """
    deadline = None if request.budget is None else time.monotonic() + request.budget
    for number, step in enumerate(QUEUE):
        done, cells = progress(step)
        table = item(step.item)
        if not isinstance(table, Item) or (cells and done == cells and not request.force):
            continue
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            return
        of_step = f"{step.item}, {', '.join(step.rows)} on {', '.join(step.columns)}, {duration(step)}"
        print(f"step {number + 1} of {len(QUEUE)}: {of_step}")
        own = dataclasses.replace(request, scale="paper", seeds=step.seeds, budget=left)
        own.execute([table], {table.name: _cells(step)})
