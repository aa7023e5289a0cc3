"""Tables and figures as data: rows, columns and variants, each with what it changes in the configuration."""

import dataclasses
import itertools

from .claims import Claim
from .measures import MeanLast, Measure
from .printed_cells import KEY, Printed, of_table
from .scales import shrunk, shrunk_read, shrunk_wrap
from .trajectories import Fields, Run, Source


@dataclasses.dataclass(frozen=True)
class Entry:
    """A row, a column or a variant of a table: what it is called, and what it changes.

    Attributes:
      name: on the command line.
      label: in tables and legends; empty: the name.
      paper: fields of Config as the paper has them.
      trend: fields instead of those at trend scale (then smoke is made of these too); None: the same.
      alone: whether `trend` stands alone; otherwise it comes on top of `paper`.
      absent: why there is nothing at trend scale; empty: there is.
      grid: alternatives of which the paper searched the best without printing it, each a set of fields.
      printed: columns of the printed cells -> what stands there; the parts of a variant are joined by ';'.
      read: what is read off, an observer's text; empty: the trained model.
      trend_read: the same at trend scale; None: the same.
      metric: which of a read-out's numbers counts at paper scale; empty: accuracy.
      fork: share of the rounds from which this differs from the run without it; None: from the start.
      lead: rounds that it must see before, such as a window's; it is forked so much earlier.
      measure: what is read off the curve.
      begins: (a run of its own, a part): training starts with that part of the run's last model; None: afresh.
      x: where it is on the axis of a sweep.
      group: the panel of a sweep that it belongs to.
      ours: whether it stands beside the printed ones without being among them.
    """

    name: str
    label: str = ""
    paper: Fields = Fields()
    trend: Fields | None = None
    alone: bool = False
    absent: str = ""
    grid: tuple[Fields, ...] = ()
    printed: tuple[tuple[str, str], ...] = ()
    read: str = ""
    trend_read: str | None = None
    metric: str = ""
    fork: float | None = None
    lead: int = 0
    measure: Measure = MeanLast()
    begins: tuple["Entry", str] | None = None
    x: float | None = None
    group: str = ""
    ours: bool = False

    @property
    def title(self) -> str:
        """What tables and legends call it."""
        return self.label or self.name

    def fields(self, scale: str) -> Fields:
        """Returns what it changes at a scale; smoke is made of the trend, or where there is none of the paper's."""
        if scale == "paper" or self.trend is None or self.absent:
            return self.paper
        return self.trend if self.alone else self.paper | self.trend

    def reading(self, scale: str) -> str:
        """Returns its read-out at a scale."""
        if scale == "paper" or (self.absent and scale != "smoke"):
            return self.read
        read = self.read if self.trend_read is None else self.trend_read
        return shrunk_read(read) if scale == "smoke" else read


@dataclasses.dataclass(frozen=True)
class Override:
    """What some cells change besides their row, column and variant.

    Attributes:
      entry: what they change.
      rows: names of their rows; empty: all.
      columns: names of their columns; empty: all.
      variants: names of their variants; empty: all.
    """

    entry: Entry
    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()

    def meets(self, row: Entry, column: Entry, variant: Entry) -> bool:
        """Whether a cell is one of them."""
        asked = ((self.rows, row), (self.columns, column), (self.variants, variant))
        return all(not names or entry.name in names for names, entry in asked)


@dataclasses.dataclass(frozen=True)
class Cell:
    """One number of a table, or one curve of a figure.

    Attributes:
      row, column, variant: where it is.
      runs: what it is read off: one run, or the candidates of a grid.
      read: the read-out, an observer's text; empty: the trained model.
      measure: what is read off its curve.
      reference: run that the measure needs besides (a target's, a speed-up's); None: none.
      printed: what the paper prints there; None: nothing.
      metric: which of the read-out's numbers counts.
    """

    row: Entry
    column: Entry
    variant: Entry
    runs: tuple[Run, ...]
    read: str
    measure: Measure
    reference: Run | None
    printed: Printed | None
    metric: str = "accuracy"

    @property
    def place(self) -> tuple[str, str, str]:
        """Names of row, column and variant."""
        return self.row.name, self.column.name, self.variant.name


@dataclasses.dataclass(frozen=True)
class Item:
    """A table, or a figure whose content are curves or accuracies against a parameter.

    Attributes:
      name: such as 'wima/table2'.
      title: what it shows, one line.
      base: what all cells share.
      rows: entries of the first axis.
      columns: entries of the second.
      variants: entries of the third, within a cell.
      overrides: what single cells change.
      draw: 'table', 'curves' (a panel per column) or 'sweep' (a line per row and variant, columns on the axis).
      axis: name of a sweep's axis.
      table: (paper, table) of the printed cells; None: nothing is printed.
      seeds: at paper scale.
      trend_seeds: at trend scale.
      paired: whether it is a table of our own, with 95 % intervals and paired differences to the first row.
      claims: what the paper says of it.
      assumed: what the paper does not state, and what is taken instead.
      standin: what takes the place of data and networks at trend scale, and what else is smaller there.
      cost: at paper scale, in words.
    """

    name: str
    title: str
    base: Entry
    rows: tuple[Entry, ...]
    columns: tuple[Entry, ...]
    variants: tuple[Entry, ...] = (Entry("base"),)
    overrides: tuple[Override, ...] = ()
    draw: str = "table"
    axis: str = ""
    table: tuple[str, str] | None = None
    seeds: tuple[int, ...] = (0, 1, 2)
    trend_seeds: tuple[int, ...] = (0,)
    paired: bool = False
    claims: tuple[Claim, ...] = ()
    assumed: tuple[str, ...] = ()
    standin: str = ""
    cost: str = ""

    def cells(self, scale: str) -> list[Cell]:
        """Returns the cells that there are at a scale; of a printed table, those that are printed, and our own."""
        known = of_table(*self.table) if self.table else {}
        cells = []
        for row, column, variant in itertools.product(self.rows, self.columns, self.variants):
            printed = known.get(self.printed_key(row, column, variant))
            entries = [self.base, column, row, variant]
            entries += [o.entry for o in self.overrides if o.meets(row, column, variant)]
            ours = any(entry.ours for entry in (row, column, variant))
            absent = scale == "trend" and any(entry.absent for entry in entries)
            if absent or (self.table and printed is None and not ours):
                continue
            cells.append(self._cell(scale, row, column, variant, entries, printed))
        return cells

    def printed_key(self, row: Entry, column: Entry, variant: Entry) -> tuple[str, ...]:
        """Returns the key of a printed cell: the values of KEY."""
        found: dict[str, str] = dict(zip(("paper", "table"), self.table or ("", ""), strict=True))
        for name, text in (*self.base.printed, *column.printed, *variant.printed, *row.printed):
            found[name] = f"{found[name]};{text}" if name == "variant" and found.get(name) else text
        return tuple(found.get(name, "") for name in KEY)

    def _cell(self, scale, row, column, variant, entries: list[Entry], printed) -> Cell:
        def run(grid: Fields) -> Run:
            parting = [entry for entry in entries if entry.fork is not None]
            shared = _merged(scale, [entry for entry in entries if entry not in parting]) | grid
            begun = Run(shrunk(shared) if scale == "smoke" else shared, _beginning(scale, entries))
            if not parting:
                return begun
            fields = _merged(scale, parting)
            fields = shrunk_wrap(fields) if scale == "smoke" else fields
            return begun.forked(parting[0].fork or 0.0, fields, parting[0].lead)

        grids = [entry.grid for entry in entries if entry.grid] if scale == "paper" else []
        # The last grid is the most particular one: an override's replaces the row's.
        runs = tuple(run(fields) for fields in (grids[-1] if grids else (Fields(),)))
        read = next((entry.reading(scale) for entry in reversed(entries) if entry.read or entry.trend_read), "")
        measure = next((e.measure for e in reversed(entries) if e.measure != MeanLast()), MeanLast())
        metric = next((e.metric for e in reversed(entries) if e.metric and scale == "paper"), "accuracy")
        reference = self._reference(scale, entries, measure)
        return Cell(row, column, variant, runs, read, measure, reference, printed, metric)

    @staticmethod
    def _reference(scale: str, entries: list[Entry], measure: Measure) -> Run | None:
        if measure.reference is None:
            return None
        fields = _merged(scale, entries[:2]) | measure.reference
        return Run(shrunk(fields) if scale == "smoke" else fields)


def _beginning(scale: str, entries: list[Entry]) -> Source | None:
    """Returns what a run begins with: a part of another run's last model, or None for a fresh one."""
    found = next((entry.begins for entry in reversed(entries) if entry.begins), None)
    if found is None:
        return None
    entry, part = found
    fields = entry.fields(scale)
    run = Run(shrunk(fields) if scale == "smoke" else fields)
    return Source(run, run.num_rounds, part)


def _merged(scale: str, entries: list[Entry]) -> Fields:
    """Returns the fields of several entries; later ones win."""
    merged = Fields()
    for entry in entries:
        merged |= entry.fields(scale)
    return merged
