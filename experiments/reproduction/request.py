"""A request to `fedwin reproduce`: its options, and its execution from the plan to the written tables."""

import dataclasses
import pathlib
import re
import shutil
import time
from typing import Any

from fedwin.errors import UserError
from fedwin.files import replace_text, writing

from .. import launching
from ..cli import picture_format
from ..cli.requirements import readable
from ..figures import stored as figure_files
from ..papers.items import Analysis, AnyItem, Cell, Item, file_stem
from ..tables.formats import check_folder
from . import pictures, tables
from .numbers import value
from .results import IN_CHECKOUT, RESULTS, Results, keep, stored
from .runs import RunDirectory, plan, run_directories, without_stored
from .work import BudgetSpent, launch, work


def seconds_of(text: str) -> float | None:
    """Returns a duration such as '2h' in seconds, None for ''; raises UserError for another text.

    >>> seconds_of("20m")
    1200.0
    """
    if not text:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text)
    if match is None:
        raise UserError(f"budget='{text}' is not a duration; write 90s, 20m or 2h.")
    return float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2]]


@dataclasses.dataclass(frozen=True)
class Request:
    """A request for tables and figures: the flags of `fedwin reproduce`.

    Attributes:
      seeds: seeds instead of the items' own; empty: those.
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
    launcher: launching.Launcher | None = None

    @classmethod
    def from_flags(cls, values: Any) -> "Request":
        """Returns the request of a command line; raises UserError if a value is invalid."""
        names = ("scale", "data_dir", "dry_run", "from_results", "keep", "afresh", "seeds_at_once")
        if not all(text.isascii() and text.isdecimal() for text in values.seeds):
            raise UserError(f"seeds={','.join(values.seeds)}: seeds are whole numbers, such as 0,1,2.")
        return cls(
            out_dir=pathlib.Path(values.out_dir),
            seeds=tuple(dict.fromkeys(map(int, values.seeds))),
            budget=seconds_of(values.budget),
            form=picture_format.chosen(),
            launcher=launching.chosen(),
            **{name: getattr(values, name) for name in names},
        )

    @property
    def tables(self) -> pathlib.Path:
        """Folder of tables and pictures."""
        return self.out_dir / self.scale / "tables"

    def results(self) -> Results:
        """Returns the places of records and of figures' data, as they are now: other processes may add some."""
        own = [] if self.from_results else [self.out_dir / self.scale, self.tables]
        return Results(self.scale, *own, *([] if self.afresh else [RESULTS / self.scale]))

    def check(self) -> None:
        """Raises UserError if out_dir can't hold runs, or no results can be drawn or added to; creates nothing."""
        check_folder(self.out_dir)
        if self.keep and not IN_CHECKOUT:
            raise UserError("--keep stores results in a checkout of the repository; this package is installed.")
        if self.from_results and not stored(self.scale).packed:
            raise UserError(
                f"there are no stored results of scale {self.scale}; those of the project are in its repository, "
                "folder experiments/results, and in its wheel."
            )

    def execute(self, items: list[AnyItem], cells: dict[str, list[Cell]]) -> None:
        """Plans, trains, writes and draws tables, of which `cells` are requested; UserError if runs were rejected."""
        self.check()
        directories = [] if self.from_results else self.directories(items, cells)
        if self.launcher is not None and not self.launcher.jobs:
            launching.conclude(launch(self.launcher, directories, self.out_dir, self.data_dir, self.scale))
            return
        if not self.from_results and (line := self.of_stored(items, cells, directories)):
            print(line, flush=True)
        refused, stopped = dict[pathlib.Path, str](), ""
        deadline = None if self.budget is None else time.monotonic() + self.budget
        try:
            # Once a grid has been searched, the run of its best point is planned.
            while not all(each.finished or each.path in refused for each in directories):
                if self.launcher is not None:
                    left = [each for each in directories if each.path not in refused]
                    refused |= launch(self.launcher, left, self.out_dir, self.data_dir, self.scale)
                else:
                    budget = None if deadline is None else max(deadline - time.monotonic(), 0.0)
                    refused |= work(directories, data_dir=self.data_dir, budget=budget, scale=self.scale)
                directories = self.directories(items, cells)
        except BudgetSpent:
            left_over = sum(not directory.finished for directory in directories)
            stopped = f"the budget of {readable(self.budget or 0)} is spent; {left_over} run(s) left"
        if self.keep:
            self._keep(directories)
        with writing(self.tables):
            self.tables.mkdir(parents=True, exist_ok=True)
        results = self.results()
        for each in items:
            if isinstance(each, Item):
                self._write_item(each, cells[each.name], results)
            elif isinstance(each, Analysis):
                self._draw_analysis(each, results, directories)
        for path, reason in refused.items():
            print(f"refused: {path}: {reason}")
        if stopped:
            print(f"{stopped}, the same command resumes them.")
        if refused:
            raise UserError(f"{len(refused)} run(s) were refused, the last: {list(refused.values())[-1]}")

    def directories(self, items: list[AnyItem], cells: dict[str, list[Cell]]) -> list[RunDirectory]:
        """Returns the directories of all runs that have to be trained, or have been."""
        results = self.results()
        tasks = plan(items, self.scale, self.seeds, cells, results)
        if not self.afresh:
            pending = [each for each in items if isinstance(each, Analysis) and not self._figure(each, results)]
            analyzed = [run.key for each in pending for run in each.trajectories(self.scale).values()]
            tasks = without_stored(tasks, stored(self.scale), analyzed)
        return run_directories(tasks, self.out_dir / self.scale, self.scale, self.seeds_at_once)

    def of_stored(self, items: list[AnyItem], cells: dict[str, list[Cell]], directories: list[RunDirectory]) -> str:
        """Returns the days of the stored results that are shown, and how long training them takes; '' if none is."""
        results, days, seconds = self.results(), set(), 0.0
        trained = {(each.task.run.key, seed) for each in directories for seed in each.seeds}
        tasks = plan(items, self.scale, self.seeds, cells, results)
        pairs = [(task.run, seed) for task in tasks for seed in task.seeds if (task.run.key, seed) not in trained]
        for run, seed in pairs:
            # The first record that has ended counts, and those of out_dir come first.
            record = next((each for each in results.records(run) if seed in each.seconds), None)
            if record is not None and record.stored:
                days.add(record.stored["day"])
                seconds += record.seconds[seed]
        if not days:
            return ""
        part = f" for {len(pairs)} of {len(pairs) + len(trained)} runs of a seed" if trained else ""
        when = " to ".join(dict.fromkeys((min(days), max(days))))
        return f"stored results of {when}{part}; --afresh trains (about {readable(seconds)})"

    def _keep(self, directories: list[RunDirectory]) -> None:
        """Stores the curves of finished runs with the project, and prints which are not."""
        added = 0
        for directory in directories:
            try:
                added += directory.finished and keep(directory.task.run, directory.path, RESULTS / self.scale)
            except UserError as error:
                print(error)
        print(f"{added} finished run(s) stored in {RESULTS / self.scale}")

    def _write_item(self, item: Item, cells: list[Cell], results: Results) -> None:
        numbers = [value(results, cell) for cell in cells]
        if not any(number.by_seed for number in numbers):  # a target that is never reached is a result
            print(f"{item.name}: nothing has been trained at scale {self.scale}.")
            return
        drawn = pictures.draw(item, results, numbers, self.tables, self.form)
        path = self.tables / f"{file_stem(item)}.csv"
        tables.write_numbers(item, results, numbers, path)
        text = tables.section(item, results, numbers, [each.name for each in drawn])
        replace_text(path.with_suffix(".md"), text + "\n")
        print(f"\n{tables.section(item, results, numbers)}\n\nwritten: {', '.join(map(str, (path, *drawn)))}")

    def _seeds(self, item: Analysis) -> tuple[int, ...]:
        return self.seeds or item.seeds_at(self.scale)

    def _figure(self, item: Analysis, results: Results) -> pathlib.Path | None:
        """Returns the file of a figure's data; None without one that has all seeds that its claims need."""
        return results.figure(file_stem(item), self._seeds(item) if item.claims and not self.from_results else ())

    def _draw_analysis(self, item: Analysis, results: Results, directories: list[RunDirectory]) -> None:
        """Draws a figure; computes its data from the seeds that are finished, unless all of its seeds have some."""
        path = self.tables / f"{file_stem(item)}.{self.form}"
        source = self._figure(item, results)
        if source is None:
            if self.from_results:
                return
            keys = {name: run.key for name, run in item.trajectories(self.scale).items()}
            finished = {(each.task.run.key, s): each.path for each in directories if each.finished for s in each.seeds}
            analyzed = {
                seed: {name: finished[key, seed] for name, key in keys.items()}
                for seed in self._seeds(item)
                if all((key, seed) in finished for key in keys.values())
            }
            if not keys or (item.kind != "labels" and not analyzed):
                why = "its runs are not finished" if keys else f"there is nothing at scale {self.scale}"
                print(f"{item.name}: {why}.")
                return
            source = path.with_suffix(".json")
            figure_files.write(
                source, pictures.compute(item, self.scale, analyzed, self.data_dir), item.titled(self.scale)
            )
        if self.keep and source.parent == self.tables and stored(self.scale).figure(path.stem) is None:
            (RESULTS / self.scale).mkdir(parents=True, exist_ok=True)
            shutil.copy(source, RESULTS / self.scale)
        pictures.draw_models(item, self.scale, source, path)
        print(f"{item.name}: {path}")
