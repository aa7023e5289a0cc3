"""A request to `fedwin reproduce`: its options, and its execution from the plan to the written tables."""

import dataclasses
import functools
import pathlib
import re
import sys
import time
from typing import Any

from fedwin.errors import UserError

from ..cli import picture_format
from ..papers.items import Analysis, AnyItem, Cell, Item, file_stem
from ..tables.formats import check_folder
from . import dry_run, inspection, pictures, write
from .plan import RunDirectory, plan, run_directories, without_stored
from .store import (
    RESULTS,
    CombinedResults,
    LocalResults,
    ResultStore,
    StoredResults,
    check_writable,
    scale_folder,
)
from .values import value
from .work import BudgetSpent, Outcome, readable, work

SECONDS = {"s": 1, "m": 60, "h": 3600}


def seconds_of(text: str) -> float | None:
    """Returns a duration such as '2h' in seconds; None for ''.

    >>> seconds_of("20m")
    1200.0

    Raises:
      UserError: the text is not a duration.
    """
    if not text:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text)
    if match is None:
        raise UserError(f"budget='{text}' is not a duration; write 90s, 20m or 2h.")
    return float(match[1]) * SECONDS[match[2]]


def _seeds(texts: list[str]) -> tuple[int, ...]:
    if not all(text.isascii() and text.isdecimal() for text in texts):
        raise UserError(f"seeds={','.join(texts)}: seeds are whole numbers, such as 0,1,2.")
    return tuple(dict.fromkeys(int(text) for text in texts))


@dataclasses.dataclass(frozen=True)
class Request:
    """What to reproduce, and how.

    Attributes:
      scale: smoke, trend or paper.
      out_dir: folder of runs, tables and pictures.
      data_dir: folder of the data sets' files.
      seeds: instead of the items' own; empty: those.
      budget: seconds after which to stop; None: unlimited.
      dry_run: whether to estimate the runs instead of training them.
      from_results: whether to draw the stored results, without training.
      keep: whether to store finished curves with the project.
      force: whether to also train runs whose results are stored with the project.
      seeds_at_once: number of seeds of a run that train vmapped in one program.
      form: format of the pictures.
    """

    scale: str = "trend"
    out_dir: pathlib.Path = pathlib.Path("runs/papers")
    data_dir: str = ""
    seeds: tuple[int, ...] = ()
    budget: float | None = None
    dry_run: bool = False
    from_results: bool = False
    keep: bool = False
    force: bool = False
    seeds_at_once: int = 1
    form: str = "png"

    @classmethod
    def from_flags(cls, values: Any) -> "Request":
        """Returns the request of a command line.

        Args:
          values: of the flags of `fedwin reproduce`.

        Raises:
          UserError: a value is invalid.
        """
        return cls(
            scale=values.scale,
            out_dir=pathlib.Path(values.out_dir),
            data_dir=values.data_dir,
            seeds=_seeds(values.seeds),
            budget=seconds_of(values.budget),
            dry_run=values.dry_run,
            from_results=values.from_results,
            keep=values.keep,
            force=values.afresh,
            seeds_at_once=values.seeds_at_once,
            form=picture_format.chosen(values),
        )

    @functools.cached_property
    def stored(self) -> StoredResults:
        """The project's stored results at this scale."""
        return StoredResults(self.scale)

    @functools.cached_property
    def store(self) -> ResultStore:
        """Where records are read."""
        local = LocalResults(self.out_dir, self.scale)
        return self.stored if self.from_results else local if self.force else CombinedResults(local, self.stored)

    def _directories(self, items: list[AnyItem], cells: dict[str, list[Cell]]) -> list[RunDirectory]:
        """Returns the directories of all runs that have to be trained, or have been."""
        tasks = plan(items, self.scale, self.seeds, cells, self.store)
        if not self.force:
            pending = [item for item in items if isinstance(item, Analysis) and not self._is_computed(item)]
            analysed = [run.key for item in pending for run in item.trajectories(self.scale).values()]
            # Read from the disk again: other processes may have stored results since.
            tasks = without_stored(tasks, StoredResults(self.scale), analysed)
        return run_directories(tasks, self.out_dir, self.scale, self.seeds_at_once)

    def _is_computed(self, item: Analysis) -> bool:
        """Whether the data of a figure exist, in out_dir or in the stored results."""
        name = f"{file_stem(item)}.json.gz"
        return (self.tables / name).is_file() or (self.stored.text(name) is not None and not self.force)

    @property
    def tables(self) -> pathlib.Path:
        """Folder of tables and pictures."""
        return scale_folder(self.out_dir, self.scale) / "tables"

    def check(self) -> None:
        """Checks that out_dir can be used, and that results can be stored if they are to be; creates nothing.

        Raises:
          UserError: out_dir is a run's directory, or below a file; or there are no results to draw or to add to.
        """
        check_folder(self.out_dir)
        if self.keep:
            check_writable()
        if self.from_results and not self.stored.names():
            raise UserError(
                f"there are no stored results of scale {self.scale}; those of the project are in its repository, "
                "folder experiments/results, and in its wheel."
            )
        for path in (self.out_dir, *self.out_dir.parents):
            if path.exists() and not path.is_dir():
                raise UserError(f"out_dir={self.out_dir} can't be made (Not a directory); choose another --out_dir.")

    def execute(self, items: list[AnyItem], cells: dict[str, list[Cell]]) -> None:
        """Plans, trains, writes and draws.

        Args:
          items: tables and figures.
          cells: name of a table -> the requested cells.

        Raises:
          UserError: runs were rejected, after all others were trained.
        """
        self.check()
        if self.from_results:
            self._write_all(items, cells, [])
            return
        directories = self._directories(items, cells)
        if self.dry_run:
            say = functools.partial(print, file=sys.stderr, flush=True)
            print(dry_run.run_table(directories, self.data_dir, self.scale, say))
            return
        outcome, stopped = Outcome(), False
        deadline = None if self.budget is None else time.monotonic() + self.budget
        try:
            # Once a grid has been searched, the run of its best point is planned.
            while not outcome.covers(directories):
                left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
                outcome.add(work(directories, data_dir=self.data_dir, budget=left, scale=self.scale))
                directories = self._directories(items, cells)
        except BudgetSpent:
            stopped = True
        if self.keep:
            self._store(directories)
        self._write_all(items, cells, directories)
        self._report(outcome, directories, stopped)

    def _store(self, directories: list[RunDirectory]) -> None:
        """Stores the curves of finished runs with the project, and says which are not."""
        added, stored = 0, StoredResults(self.scale)
        for directory in directories:
            try:
                added += directory.add_to(stored)
            except UserError as error:
                print(error)
        print(f"{added} finished run(s) stored in {RESULTS / self.scale}")

    def _report(self, outcome: Outcome, directories: list[RunDirectory], stopped: bool) -> None:
        """Prints rejected runs and a spent budget; raises UserError if any run was rejected."""
        reason = ""
        for path, reason in outcome.refused.items():
            print(f"refused: {path}: {reason}")
        if stopped:
            left = sum(not directory.finished for directory in directories)
            budget = readable(self.budget or 0)
            print(f"the budget of {budget} is spent; {left} run(s) left, the same command resumes them.")
        if outcome.refused:
            raise UserError(f"{len(outcome.refused)} run(s) were refused, the last: {reason}")

    def _write_all(self, items: list[AnyItem], cells: dict[str, list[Cell]], directories: list[RunDirectory]) -> None:
        """Writes and draws all items from the available results."""
        self.tables.mkdir(parents=True, exist_ok=True)
        for item in items:
            if isinstance(item, Item):
                self._write_item(item, cells[item.name])
            elif isinstance(item, Analysis):
                self._draw_analysis(item, directories)

    def _write_item(self, item: Item, cells: list[Cell]) -> None:
        numbers = [value(self.store, cell, self.scale) for cell in cells]
        if not any(number.by_seed for number in numbers):  # a target that is never reached is a result
            print(f"{item.name}: nothing has been trained at scale {self.scale}.")
            return
        drawn = pictures.draw(item, self.scale, self.store, numbers, self.tables, self.form)
        write.write(item, self.scale, self.store, numbers, self.tables, [path.name for path in drawn])
        text = write.section(item, self.scale, self.store, numbers)
        paths = [self.tables / f"{file_stem(item)}.csv", *drawn]
        print(f"\n{text}\n\nwritten: {', '.join(map(str, paths))}")

    def _draw_analysis(self, item: Analysis, directories: list[RunDirectory]) -> None:
        """Computes the data of a figure if they don't exist, and draws it."""
        name = f"{file_stem(item)}.json.gz"
        local = self.tables / name
        if not (self.from_results or self._is_computed(item)):
            self._compute(item, directories, local)
        own = local.is_file() and not self.from_results
        text = inspection.read(local) if own else self.stored.text(name)
        if text is None:
            return
        if self.keep and own and self.stored.text(name) is None:
            stored = self.stored.folder / name
            stored.parent.mkdir(parents=True, exist_ok=True)
            stored.write_bytes(local.read_bytes())
        path = self.tables / f"{file_stem(item)}.{self.form}"
        inspection.redraw(item, self.scale, text, path)
        print(f"{item.name}: {path}")

    def _compute(self, item: Analysis, directories: list[RunDirectory], path: pathlib.Path) -> None:
        """Computes the data of a figure if its runs are finished, and writes them."""
        keys = {name: run.key for name, run in item.trajectories(self.scale).items()}
        finished = {directory.task.run.key: directory for directory in directories if directory.finished}
        if not keys:
            print(f"{item.name}: there is nothing at scale {self.scale}.")
        elif item.kind != "labels" and not set(keys.values()) <= set(finished):
            print(f"{item.name}: its runs are not finished.")
        else:
            analysed = {name: finished[key] for name, key in keys.items() if key in finished}
            inspection.write(item, inspection.compute(item, self.scale, analysed, self.data_dir), path)
