"""Trains the LeNet-5 row of the heavy-ball paper's Table 4 within the time budget, by `fedwin reproduce`."""

import dataclasses
import os
import pathlib
import statistics
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from fedwin.files import write_json, writing
from fedwin.runs.metrics_log import read_lines

from ...papers.catalogue import item
from ...papers.ghb.settings import LENET_DEVICE
from ...papers.items import Item
from ...reproduction import datasets
from ...reproduction.plan import RunDirectory, plan, run_directories, without_stored
from ...reproduction.store import CombinedResults, LocalResults, StoredResults
from ..peers.crew import ROOT
from .pieces import Countdown

NAME = "ghb/table4"
FIRST_COLUMN = LENET_DEVICE[0].name
FIRST_ROWS = ("fedavg", "fedhbm")
# Fewest seconds for which a process is started: its programs are compiled again.
LEAST = 60.0
# Seconds for starting a process, and for writing tables at its end.
START, END = 15.0, 10.0
# Seconds by which a process may exceed its budget before it is killed.
PATIENCE = 120.0
PLAN_ROUNDS = 10_000


@dataclasses.dataclass(frozen=True)
class ReproduceCall:
    """Arguments of a process of `fedwin reproduce`.

    Attributes:
      rows: of the table; empty: all.
      columns: of the table.
      seeds: empty: the table's own.
    """

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    seeds: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Table4Training:
    """The training of a call.

    Attributes:
      out_dir: where runs and tables go.
      data_dir: folder of the data sets' files.
      scale: paper, or smoke for a trial.
      say: where news go.
    """

    out_dir: pathlib.Path
    data_dir: str
    scale: str
    say: Callable[[str], None]

    def columns(self) -> list[str]:
        """Returns the columns whose data are available."""
        if self.scale == "smoke":
            return [FIRST_COLUMN]
        return [
            column.name
            for column in LENET_DEVICE
            if not datasets.missing(column.paper["dataset"], self.data_dir, self.scale)
        ]

    def steps(self) -> list[ReproduceCall]:
        """Returns the steps of training: two methods on one column, then one seed of all, then all."""
        columns = tuple(self.columns())
        if not columns:
            return []
        first = ReproduceCall(FIRST_ROWS, columns[:1], (0,))
        return (
            [first]
            if self.scale == "smoke"
            else [first, ReproduceCall((), columns, (0,)), ReproduceCall((), columns, ())]
        )

    def units(self, step: ReproduceCall) -> list[RunDirectory]:
        """Returns the run directories of a step, without runs whose results are stored with the project."""
        table = item(NAME)
        assert isinstance(table, Item)
        cells = [c for c in table.cells(self.scale) if c.column.name in step.columns]
        cells = [c for c in cells if not step.rows or c.row.name in step.rows]
        stored = StoredResults(self.scale)
        tasks = plan(
            [table],
            self.scale,
            step.seeds,
            {table.name: cells},
            CombinedResults(LocalResults(self.out_dir, self.scale), stored),
        )
        return run_directories(without_stored(tasks, stored), self.out_dir, self.scale)

    def train(self, clock: Countdown) -> tuple[int, float]:
        """Trains until everything is done or the time is up; the next call resumes.

        Returns:
          (rounds, seconds) of this call.
        """
        rounds, left = 0, clock.left()
        for step in self.steps():
            while any(not unit.finished for unit in self.units(step)):
                if clock.left() < (LEAST if self.scale == "paper" else 0):
                    return rounds, left - clock.left()
                before = self._done(step)
                status = self._reproduce(step, clock)
                rounds += self._done(step) - before
                if status or self._done(step) == before:  # it would fail again
                    break
        return rounds, left - clock.left()

    def _done(self, step: ReproduceCall) -> int:
        return sum(sum(unit.completed()) for unit in self.units(step))

    def _reproduce(self, step: ReproduceCall, clock: Countdown) -> int:
        """Runs a process; returns its exit status, and prints its last line if that is not 0."""
        seconds = max(clock.left() - START - END, 1.0)
        arguments = [f"--scale={self.scale}", f"--columns={','.join(step.columns)}", f"--budget={seconds:.0f}s"]
        arguments += [f"--out_dir={self.out_dir}", f"--data_dir={self.data_dir}"]
        arguments += [f"--rows={','.join(step.rows)}"] if step.rows else []
        arguments += [f"--seeds={','.join(map(str, step.seeds))}"] if step.seeds else []
        fedwin = [sys.executable, "-m", (__package__ or "").partition(".tools")[0]]
        log = self.out_dir / "log.txt"
        self.say(f"{NAME}: fedwin reproduce {NAME} {' '.join(arguments)}, see {log}")
        with writing(log):
            self.out_dir.mkdir(parents=True, exist_ok=True)
            file = open(log, "a")
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
        with file:
            try:
                status = subprocess.run(
                    [*fedwin, "reproduce", NAME, *arguments],
                    stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, timeout=seconds + PATIENCE,
                    env=os.environ | {"PYTHONPATH": path}, check=False,
                ).returncode  # fmt: skip
            except subprocess.TimeoutExpired:
                self.say(f"{NAME}: did not end in time; it will resume from its last checkpoint")
                return 1
        if status:
            self.say(f"{NAME}: {(log.read_text().strip().splitlines() or [f'status {status}'])[-1]}")
        return status

    def report(self) -> list[dict[str, Any]]:
        """Returns the progress of every started run, and writes it next to the runs."""
        units = {str(unit.path): unit for step in self.steps() for unit in self.units(step)}
        records = [progress(unit) for unit in units.values() if sum(unit.completed())]
        if records:
            write_json(self.out_dir / "progress.json", records)
        return records


def pace(lines: list[dict[str, Any]]) -> float | None:
    """Returns the seconds of a round, the median over dispatches; None where there is none after the first.

    Args:
      lines: evaluations of one seed; those of a dispatch have the same seconds.
    """
    ends = {line["seconds"]: line["round"] for line in lines}
    points = sorted(ends.items())
    paces = [(s2 - s1) / (r2 - r1) for (s1, r1), (s2, r2) in zip(points, points[1:]) if r2 > r1]
    return statistics.median(paces) if paces else None


def progress(unit: RunDirectory) -> dict[str, Any]:
    """Returns how far a run is: what it is, rounds, rounds per second and what 10,000 would take."""
    config, lines = unit.task.run.config(), read_lines(unit.path / "metrics.jsonl")
    each = pace([line for line in lines if line["seed"] == unit.seeds[0]])
    last = next((line for line in reversed(lines) if "model" in line), None)
    return {
        "algorithm": config.algorithm,
        "dataset": config.dataset,
        "partition": config.partition,
        "seeds": list(unit.seeds),
        "rounds": min(unit.completed()),
        "of": config.num_rounds,
        "rounds_per_second": None if each is None else 1 / each,
        "seconds_of_10000": None if each is None else PLAN_ROUNDS * each,
        "accuracy": None if last is None else last["model"].get("accuracy"),
    }
