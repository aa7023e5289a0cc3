"""Queue of paper-scale runs, the most informative first; `fedwin reproduce --queue` works through it.

`fedwin reproduce --queue --data_dir=DIR --budget=8h --keep` resumes with the first step that is not stored yet.
"""

import dataclasses
import time
from typing import NamedTuple

from ..papers.catalogue import item
from ..papers.items import Cell, Item
from .request import Request
from .store import StoredResults
from .values import value


class Step(NamedTuple):
    """One step of the queue.

    Attributes:
      item: name of a table.
      rows: names of its rows.
      columns: names of its columns.
      seeds: to train.
      hours: on two CPU cores, roughly; None: it needs a GPU.
    """

    item: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    seeds: tuple[int, ...]
    hours: float | None


QUEUE = (
    Step("ima/table1", ("fedavg", "fedadam"), ("fmnist_shards",), (2023,), 1.0),
    Step("ghb/table3", ("fedavg", "fedhbm"), ("shakespeare_noniid",), (0,), 1.0),
    Step("ima/table1", ("fedprox", "fednova", "fedyogi", "fedgma"), ("fmnist_shards",), (2023,), 2.0),
    Step("ima/table1", ("fedasam", "fedfa"), ("fmnist_shards",), (2023,), 2.0),
    Step("ima/table1", ("fedavg", "fedadam"), ("fmnist_dirichlet",), (2023,), 1.0),
    Step("ghb/table3", ("scaffold", "fedavgm"), ("shakespeare_noniid",), (0,), 1.0),
    Step("ghb/table3", ("fedavg", "fedhbm"), ("shakespeare_noniid",), (1, 2), 2.0),
    Step("ima/table1", ("fedavg", "fedadam"), ("fmnist_shards",), (2024, 2025), 2.0),
    Step("ghb/table4", ("fedavg", "fedhbm"), ("cifar10_noniid",), (0,), 14.0),
    Step("ghb/table3", ("fedavg", "fedhbm", "scaffold"), ("cifar10_noniid",), (0,), None),
    Step("wima/table2", ("fedavg", "scaffold"), ("cifar10_alpha0",), (0,), None),
    Step("ghb/table10", ("fedavg", "fedhbm", "local_ghb"), ("cifar10_noniid",), (0,), None),
)


def _cells(step: Step) -> list[Cell]:
    """Returns the cells that a step fills."""
    table = item(step.item)
    if not isinstance(table, Item):
        return []
    return [c for c in table.cells("paper") if c.row.name in step.rows and c.column.name in step.columns]


def progress(step: Step) -> tuple[int, int]:
    """Returns (cells with a final number in the stored results, cells) of a step."""
    cells = _cells(step)
    numbers = [value(StoredResults("paper"), cell, "paper") for cell in cells]
    done = sum(all(number.by_seed.get(seed) is not None for seed in step.seeds) for number in numbers)
    return done, len(cells)


def work_off(request: Request) -> None:
    """Executes the steps that are not done, in their order.

    Args:
      request: directories, budget, and whether finished curves are stored.
    """
    deadline = None if request.budget is None else time.monotonic() + request.budget
    for number, step in enumerate(QUEUE):
        done, cells = progress(step)
        table = item(step.item)
        if not isinstance(table, Item) or (cells and done == cells):
            continue
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            return
        print(f"step {number + 1} of {len(QUEUE)}: {step.item}, {', '.join(step.rows)} on {', '.join(step.columns)}")
        own = dataclasses.replace(request, scale="paper", seeds=step.seeds, budget=left)
        own.execute([table], {table.name: _cells(step)})
