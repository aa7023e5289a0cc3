"""What `fedwin reproduce` is asked to do, and doing it."""

import dataclasses
import functools
import pathlib
import re
import time
from typing import Any

from fedwin.errors import UserError

from ..papers.items import Analysis, Cell, Item, Sketch
from ..table_files import check_folder
from . import dry_run, inspecting, pictures, written
from .keeping import keep
from .places import Unit, home, stem_of, units
from .plan import plan, without_kept
from .shelf import KEPT, Directories, Kept, Several, Shelf
from .values import value
from .work import BudgetSpent, Outcome, readable, work

SECONDS = {"s": 1, "m": 60, "h": 3600}


def seconds_of(text: str) -> float | None:
    """Returns a time such as '2h' in seconds; None for none.

    >>> seconds_of("20m")
    1200.0

    Raises:
      UserError: it is no time.
    """
    if not text:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text)
    if match is None:
        raise UserError(f"budget='{text}' is no time; write 90s, 20m or 2h.")
    return float(match[1]) * SECONDS[match[2]]


def _seeds(texts: list[str]) -> tuple[int, ...]:
    if not all(text.isascii() and text.isdecimal() for text in texts):
        raise UserError(f"seeds={','.join(texts)}: seeds are whole numbers, such as 0,1,2.")
    return tuple(dict.fromkeys(int(text) for text in texts))


@dataclasses.dataclass(frozen=True)
class Order:
    """What is asked for.

    Attributes:
      scale: smoke, trend or paper.
      out_dir: where runs, tables and pictures go.
      data_dir: folder of the data sets' files.
      seeds: instead of the items' own; empty: those.
      budget: seconds after which to stop; None: no bound.
      only_plan: whether nothing is trained.
      from_results: whether the kept results are drawn and nothing is trained.
      keep: whether finished curves are kept with the project.
      afresh: whether what is kept with the project is trained all the same.
    """

    scale: str = "trend"
    out_dir: pathlib.Path = pathlib.Path("runs/papers")
    data_dir: str = ""
    seeds: tuple[int, ...] = ()
    budget: float | None = None
    only_plan: bool = False
    from_results: bool = False
    keep: bool = False
    afresh: bool = False

    @classmethod
    def from_flags(cls, known: Any) -> "Order":
        """Returns what the flags of `fedwin reproduce` say; raises UserError for a bad value."""
        return cls(
            scale=known.scale,
            out_dir=pathlib.Path(known.out_dir),
            data_dir=known.data_dir,
            seeds=_seeds(known.seeds),
            budget=seconds_of(known.budget),
            only_plan=known.dry_run,
            from_results=known.from_results,
            keep=known.keep,
            afresh=known.afresh,
        )

    @functools.cached_property
    def shelf(self) -> Shelf:
        """Where curves are read."""
        own, kept = Directories(self.out_dir, self.scale), Kept(self.scale)
        return kept if self.from_results else own if self.afresh else Several(own, kept)

    def _units(self, items: list[Item | Analysis | Sketch], cells: dict[str, list[Cell]]) -> list[Unit]:
        tasks = plan(items, self.scale, self.seeds, cells, self.shelf)
        if not self.afresh:
            inspected = [one for one in items if isinstance(one, Analysis) and not self._has(one)]
            looked_into = [run.key for one in inspected for run in one.trajectories(self.scale).values()]
            tasks = without_kept(tasks, Kept(self.scale), looked_into)
        return units(tasks, self.out_dir, self.scale)

    def _has(self, one: Analysis) -> bool:
        """Whether what a figure shows is there already."""
        name = f"{stem_of(one)}.json.gz"
        kept = (Kept(self.scale).where / name).is_file() and not self.afresh
        return (self.tables / name).is_file() or kept

    @property
    def tables(self) -> pathlib.Path:
        """Where tables and pictures go."""
        return home(self.out_dir, self.scale) / "tables"

    def check(self) -> None:
        """Raises UserError where nothing may go below out_dir; makes nothing."""
        check_folder(self.out_dir)
        for path in (self.out_dir, *self.out_dir.parents):
            if path.exists() and not path.is_dir():
                raise UserError(f"out_dir={self.out_dir} can't be made (Not a directory); choose another --out_dir.")

    def carry_out(self, items: list[Item | Analysis | Sketch], cells: dict[str, list[Cell]]) -> None:
        """Plans, trains, writes and draws.

        Args:
          items: tables and figures.
          cells: name of an item -> those of its cells that are asked for.

        Raises:
          UserError: runs were refused, after all others were trained.
        """
        self.check()
        if self.from_results:
            self.write_all(items, cells, [])
            return
        found = self._units(items, cells)
        if self.only_plan:
            print(dry_run.table(found, self.data_dir))
            return
        outcome, stopped = Outcome(), False
        deadline = None if self.budget is None else time.monotonic() + self.budget
        try:
            # Once a grid has been searched, its winner is planned.
            while not outcome.covers(found):
                left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
                outcome.add(work(found, data_dir=self.data_dir, budget=left))
                found = self._units(items, cells)
        except BudgetSpent:
            stopped = True
        if self.keep:
            kept = sum(keep(unit, Kept(self.scale)) for unit in found)
            print(f"{kept} finished run(s) kept in {KEPT / self.scale}")
        self.write_all(items, cells, found)
        for directory, reason in outcome.refused.items():
            print(f"refused: {directory}: {reason}")
        if stopped:
            left = sum(not unit.finished for unit in found)
            print(f"the budget of {readable(self.budget or 0)} is spent; {left} run(s) left, the same command goes on.")
        if outcome.refused:
            raise UserError(f"{len(outcome.refused)} run(s) were refused, the last: {reason}")

    def write_all(self, items: list[Item | Analysis | Sketch], cells: dict[str, list[Cell]], found: list[Unit]) -> None:
        """Writes and draws all items from what there is."""
        self.tables.mkdir(parents=True, exist_ok=True)
        for one in items:
            if isinstance(one, Item):
                self._write(one, cells[one.name])
            elif isinstance(one, Analysis):
                self._inspect(one, found)

    def _write(self, one: Item, cells: list[Cell]) -> None:
        numbers = [value(self.shelf, cell, self.scale) for cell in cells]
        if not any(number.each for number in numbers):  # a target that is never reached is a result
            print(f"{one.name}: nothing has been trained at scale {self.scale}.")
            return
        drawn = pictures.draw(one, self.scale, self.shelf, numbers, self.tables)
        written.write(one, self.scale, self.shelf, numbers, self.tables, [path.name for path in drawn])
        text = written.section(one, self.scale, self.shelf, numbers)
        paths = [self.tables / f"{stem_of(one)}.csv", *drawn]
        print(f"\n{text}\n\nwritten: {', '.join(map(str, paths))}")

    def _inspect(self, one: Analysis, found: list[Unit]) -> None:
        stem = stem_of(one)
        own, kept = self.tables / f"{stem}.json.gz", Kept(self.scale).where / f"{stem}.json.gz"
        if not (self.from_results or self._has(one)):
            self._look_into(one, found, own)
        source = own if own.is_file() and not self.from_results else kept
        if not source.is_file():
            return
        if self.keep and not kept.is_file():
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_bytes(source.read_bytes())
        path = self.tables / f"{stem}.png"
        inspecting.redraw(one, self.scale, source, path)
        print(f"{one.name}: {path}")

    def _look_into(self, one: Analysis, found: list[Unit], path: pathlib.Path) -> None:
        """Computes what a figure shows, if its runs are finished, and writes it."""
        runs = {name: run.key for name, run in one.trajectories(self.scale).items()}
        ready = {unit.task.run.key: unit for unit in found if unit.finished}
        if not runs:
            print(f"{one.name}: there is nothing at scale {self.scale}.")
        elif one.kind != "labels" and not set(runs.values()) <= set(ready):
            print(f"{one.name}: its runs are not finished.")
        else:
            chosen = {name: ready[key] for name, key in runs.items() if key in ready}
            inspecting.write(one, inspecting.compute(one, self.scale, chosen, self.data_dir), path)
