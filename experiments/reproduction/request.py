"""A request to `fedwin reproduce`: its options, and its execution from the plan to the written tables."""

import dataclasses
import functools
import pathlib
import re
import shutil
import time
from typing import Any

from fedwin.errors import UserError

from ..cli import picture_format
from ..figures import stored as figure_files
from ..papers.items import Analysis, AnyItem, Cell, Item, file_stem
from ..tables.formats import check_folder
from . import pictures, tables
from .numbers import value
from .results import RESULTS, Results, check_writable, keep, stored
from .runs import RunDirectory, plan, run_directories, without_stored
from .work import BudgetSpent, readable, work

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
    """A request for tables and figures: the flags of `fedwin reproduce`.

    Attributes:
      seeds: instead of the items' own; empty: those.
      budget: seconds after which to stop; None: unlimited.
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
    afresh: bool = False
    seeds_at_once: int = 1
    form: str = "png"

    @classmethod
    def from_flags(cls, values: Any) -> "Request":
        """Returns the request of a command line.

        Raises:
          UserError: a value is invalid.
        """
        names = ("scale", "data_dir", "dry_run", "from_results", "keep", "afresh", "seeds_at_once")
        return cls(
            out_dir=pathlib.Path(values.out_dir),
            seeds=_seeds(values.seeds),
            budget=seconds_of(values.budget),
            form=picture_format.chosen(values),
            **{name: getattr(values, name) for name in names},
        )

    @property
    def folder(self) -> pathlib.Path:
        """Folder of the runs of this scale."""
        return self.out_dir / self.scale

    @property
    def tables(self) -> pathlib.Path:
        """Folder of tables and pictures."""
        return self.folder / "tables"

    @functools.cached_property
    def stored(self) -> Results:
        """The project's stored results at this scale."""
        return stored(self.scale)

    @functools.cached_property
    def results(self) -> Results:
        """Where records are read."""
        own, kept = [self.folder] * (not self.from_results), [RESULTS / self.scale] * (not self.afresh)
        return Results(self.scale, *own, *kept)

    def check(self) -> None:
        """Checks that out_dir can be used, and that results can be stored if they are to be; creates nothing.

        Raises:
          UserError: out_dir is a run's directory, or below a file; or there are no results to draw or to add to.
        """
        check_folder(self.out_dir)
        if self.keep:
            check_writable()
        if self.from_results and not self.stored.packed:
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
          cells: name of a table -> the requested cells.

        Raises:
          UserError: runs were rejected, after all others were trained.
        """
        self.check()
        directories = [] if self.from_results else self.directories(items, cells)
        refused: dict[pathlib.Path, str] = {}
        stopped = False
        deadline = None if self.budget is None else time.monotonic() + self.budget
        try:
            # Once a grid has been searched, the run of its best point is planned.
            while not all(each.finished or each.path in refused for each in directories):
                left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
                refused |= work(directories, data_dir=self.data_dir, budget=left, scale=self.scale)
                directories = self.directories(items, cells)
        except BudgetSpent:
            stopped = True
        if self.keep:
            self._keep(directories)
        self.tables.mkdir(parents=True, exist_ok=True)
        for each in items:
            if isinstance(each, Item):
                self._write_item(each, cells[each.name])
            elif isinstance(each, Analysis):
                self._draw_analysis(each, directories)
        self._report(refused, directories, stopped)

    def directories(self, items: list[AnyItem], cells: dict[str, list[Cell]]) -> list[RunDirectory]:
        """Returns the directories of all runs that have to be trained, or have been."""
        # Read from the disk again: other processes may have stored results since.
        kept = stored(self.scale)
        tasks = plan(items, self.scale, self.seeds, cells, Results(self.scale, *self.results.folders))
        if not self.afresh:
            pending = [each for each in items if isinstance(each, Analysis) and not self._figure(each)]
            analyzed = [run.key for each in pending for run in each.trajectories(self.scale).values()]
            tasks = without_stored(tasks, kept, analyzed)
        return run_directories(tasks, self.folder, self.scale, self.seeds_at_once)

    def _keep(self, directories: list[RunDirectory]) -> None:
        """Stores the curves of finished runs with the project, and prints which are not."""
        added = 0
        for directory in directories:
            try:
                added += directory.finished and keep(directory.task.run, directory.path, RESULTS / self.scale)
            except UserError as error:
                print(error)
        print(f"{added} finished run(s) stored in {RESULTS / self.scale}")

    def _report(self, refused: dict[pathlib.Path, str], directories: list[RunDirectory], stopped: bool) -> None:
        """Prints rejected runs and a spent budget; raises UserError if any run was rejected."""
        reason = ""
        for path, reason in refused.items():
            print(f"refused: {path}: {reason}")
        if stopped:
            left = sum(not directory.finished for directory in directories)
            budget = readable(self.budget or 0)
            print(f"the budget of {budget} is spent; {left} run(s) left, the same command resumes them.")
        if refused:
            raise UserError(f"{len(refused)} run(s) were refused, the last: {reason}")

    def _write_item(self, item: Item, cells: list[Cell]) -> None:
        numbers = [value(self.results, cell) for cell in cells]
        if not any(number.by_seed for number in numbers):  # a target that is never reached is a result
            print(f"{item.name}: nothing has been trained at scale {self.scale}.")
            return
        drawn = pictures.draw(item, self.results, numbers, self.tables, self.form)
        tables.write(item, self.results, numbers, self.tables, [path.name for path in drawn])
        text = tables.section(item, self.results, numbers)
        paths = [self.tables / f"{file_stem(item)}.csv", *drawn]
        print(f"\n{text}\n\nwritten: {', '.join(map(str, paths))}")

    def _figure(self, item: Analysis) -> pathlib.Path | None:
        """Returns the file of a figure's data, in out_dir or in the stored results; None without one."""
        local = self.tables / f"{file_stem(item)}.json"
        if local.is_file() and not self.from_results:
            return local
        return None if self.afresh else self.stored.figure(file_stem(item))

    def _draw_analysis(self, item: Analysis, directories: list[RunDirectory]) -> None:
        """Computes the data of a figure if they don't exist, and draws it."""
        source = self._figure(item)
        if source is None and not self.from_results:
            source = self._compute(item, directories)
        if source is None:
            return
        if self.keep and source.parent == self.tables and self.stored.figure(file_stem(item)) is None:
            (RESULTS / self.scale).mkdir(parents=True, exist_ok=True)
            shutil.copy(source, RESULTS / self.scale)
        path = self.tables / f"{file_stem(item)}.{self.form}"
        pictures.draw_models(item, self.scale, source, path)
        print(f"{item.name}: {path}")

    def _compute(self, item: Analysis, directories: list[RunDirectory]) -> pathlib.Path | None:
        """Computes and writes the data of a figure if its runs are finished; returns their file."""
        keys = {name: run.key for name, run in item.trajectories(self.scale).items()}
        finished = {directory.task.run.key: directory for directory in directories if directory.finished}
        if not keys:
            print(f"{item.name}: there is nothing at scale {self.scale}.")
            return None
        if item.kind != "labels" and not set(keys.values()) <= set(finished):
            print(f"{item.name}: its runs are not finished.")
            return None
        analyzed = {name: finished[key] for name, key in keys.items() if key in finished}
        path = self.tables / f"{file_stem(item)}.json"
        figure_files.write(path, pictures.compute(item, self.scale, analyzed, self.data_dir), item.title)
        return path
