"""Tables and figures as data: rows, columns and variants, cells, claims, and analyses of trained models."""

import dataclasses
import functools
import itertools
import pathlib
from typing import Any

from fedwin.registry.choices import parse

from . import printed_cells
from .claims import Claim, claims_of
from .measures import MeanLast, Measure
from .remarks import FOLDER, best_of, lines_of, subjects
from .scales import shrunk, shrunk_read, shrunk_wrap
from .trajectories import Checkpoint, Fields, Run

# Seeds of a stand-in: as many as a verdict needs.
TREND_SEEDS = (0, 1, 2, 3, 4)
# Titles of data sets; others are named as on the command line.
DATA = {
    "fmnist": "Fashion-MNIST", "cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "cifar100_pam": "CIFAR-100",
    "mnist_writers": "MNIST by writers", "femnist": "FEMNIST", "landmarks": "Landmarks", "inaturalist": "iNaturalist",
    "stackoverflow": "Stack Overflow", "shakespeare": "Shakespeare", "shakespeare_leaf": "Shakespeare",
    "shakespeare_plays": "Shakespeare's plays", "digit5": "Digit Five", "pacs": "PACS",
}  # fmt: skip


def data_title(dataset: str) -> str:
    """Returns the title of a data set, such as 'CIFAR-10 at 16x16' of cifar10:size=16."""
    choice = parse(dataset)
    title, size = DATA.get(choice.name, choice.name), choice.params.get("size")
    return title if size is None else f"{title} at {size}x{size}"


def stand_in(dataset: str, wanted: str) -> str:
    """Returns 'Fashion-MNIST for CIFAR-100', 'CIFAR-10 at 16x16' of the same data, or '' if nothing stands in."""
    used, other = data_title(dataset), data_title(wanted)
    return "" if used == other else used if used.partition(" at ")[0] == other else f"{used} for {other}"


def printed_at(dataset: str, partition: str, model: str, *more: tuple[str, str]) -> tuple[tuple[str, str], ...]:
    """Returns the place of a column in the CSV of printed numbers, a Variation's `printed`."""
    return (("dataset", dataset), ("partition", partition), ("model", model), *more)


@dataclasses.dataclass(frozen=True)
class Variation:
    """Named changes to the configuration: a row, column or variant of a table, or the base that all cells share.

    Attributes:
      label: its name in tables and legends; empty: the name.
      paper: fields of Config at paper scale.
      trend: fields at trend scale, from which smoke scale is derived, too; None: the same as `paper`.
      trend_replaces: whether `trend` replaces `paper`; otherwise it is merged into it.
      absent: why there is nothing at trend scale; empty: there is.
      grid: alternatives that the paper searched without printing the best one, each a set of fields.
      printed: (column of the CSV of printed numbers, value there); several values for `variant` are joined by ';'.
      read: the read-out, an observer's text; empty: the trained model.
      trend_read: the read-out at trend scale; None: the same as `read`.
      metric: which of a read-out's metrics counts at paper scale; empty: accuracy.
      fork: share of the rounds from which the run differs from the one without this variation; None: from the start.
      warm_start: (variation that another run is, part): training starts with that part of the run's last model.
      x: position on the axis of a sweep.
      group: the panel of a sweep that it belongs to.
      ours: whether it is an addition of ours to the printed ones.
    """

    name: str
    label: str = ""
    paper: Fields = Fields()
    trend: Fields | None = None
    trend_replaces: bool = False
    absent: str = ""
    grid: tuple[Fields, ...] = ()
    printed: tuple[tuple[str, str], ...] = ()
    read: str = ""
    trend_read: str | None = None
    metric: str = ""
    fork: float | None = None
    measure: Measure = MeanLast()
    warm_start: tuple["Variation", str] | None = None
    x: float | None = None
    group: str = ""
    ours: bool = False

    @property
    def title(self) -> str:
        """Its name in tables and legends."""
        return self.label or self.name

    def merged(self, **fields: Any) -> "Variation":
        """Returns the variation with further fields at every scale."""
        trend = None if self.trend is None else self.trend | fields
        return dataclasses.replace(self, paper=self.paper | fields, trend=trend)

    def fields(self, scale: str) -> Fields:
        """Returns the fields of Config at a scale; smoke scale is that of the trend, or else of the paper."""
        if scale == "paper" or self.trend is None or self.absent:
            return self.paper
        return self.trend if self.trend_replaces else self.paper | self.trend

    def readout(self, scale: str) -> str:
        """Returns the read-out at a scale, an observer's text; '' for the trained model."""
        if scale == "paper" or (self.absent and scale != "smoke"):
            return self.read
        read = self.read if self.trend_read is None else self.trend_read
        return shrunk_read(read) if scale == "smoke" else read


def methods(group: str) -> tuple[Variation, ...]:
    """Returns the rows of a group of methods.csv; the first alternative of a grid is the default."""
    rows = []
    for line in lines_of(FOLDER / "methods.csv"):
        if group in line["group"].split():
            grid = tuple(map(Fields.of, line["grid"].split(" | ")))
            trend = Fields.of(line["trend"]) if line["trend"] else None
            printed = (("algorithm", line["label"]),) if line["label"] else ()
            searched = grid if len(grid) > 1 else ()
            rows.append(Variation(line["method"], line["label"], grid[0], trend, grid=searched, printed=printed))
    return tuple(rows)


def columns(group: str) -> tuple[Variation, ...]:
    """Returns the columns of a group of columns.csv, which names data set, partition, model and variant as printed."""
    found = []
    for line in lines_of(FOLDER / "columns.csv"):
        if line["group"] == group:
            trend = Fields.of(line["trend"]) if line["trend"] else None
            more = [("variant", line["variant"])] if line["variant"] else []
            printed = printed_at(line["dataset"], line["partition"], line["model"], *more)
            own = Variation(line["column"], line["label"], Fields.of(line["fields"]), trend, trend_replaces=True)
            own = dataclasses.replace(own, absent=line["absent"], metric=line["metric"], printed=printed)
            found.append(own)
    return tuple(found)


@dataclasses.dataclass(frozen=True)
class Override:
    """Changes of some cells besides those of their row, column and variant; without names, of all of an axis."""

    variation: Variation
    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()

    def applies_to(self, row: Variation, column: Variation, variant: Variation) -> bool:
        """Whether a cell is changed."""
        axes = ((self.rows, row), (self.columns, column), (self.variants, variant))
        return all(not names or variation.name in names for names, variation in axes)


def searched(path: pathlib.Path, by: str = "accuracy") -> dict[tuple[str, ...], Fields]:
    """Returns (row, column) -> flags and rate of the best setting of a CSV file of what was tried; see best_of."""
    best = best_of(lines_of(path), "row", "column", by=by)
    return {at: Fields.of(line.get("flags", "")) | {"client_lr": float(line["rate"])} for at, line in best.items()}


def of_cells(settings: dict[tuple[str, ...], Fields]) -> tuple[Override, ...]:
    """Returns the overrides with the fields of cells, (row, column) -> fields."""
    named = ((Variation("_".join(at), paper=fields), at) for at, fields in settings.items())
    return tuple(Override(variation, rows=(row,), columns=(column,)) for variation, (row, column) in named)


@dataclasses.dataclass(frozen=True)
class Cell:
    """One number of a table, or one curve of a figure.

    Attributes:
      runs: the run that it is read from, or the candidates of a grid.
      read: the read-out, an observer's text; empty: the trained model.
      reference: another run that the measure needs (for a speed-up); None: none.
      printed: the paper's number; None: none is printed.
      data: those that stand in for the paper's, see `stand_in`; '' for the paper's own.
    """

    row: Variation
    column: Variation
    variant: Variation
    runs: tuple[Run, ...]
    read: str
    measure: Measure
    reference: Run | None
    printed: printed_cells.Printed | None
    metric: str = "accuracy"
    data: str = ""

    @property
    def position(self) -> tuple[str, str, str]:
        """Names of row, column and variant."""
        return self.row.name, self.column.name, self.variant.name

    @property
    def heading(self) -> str:
        """Title of its column, with the data that are used: 'Fashion-MNIST for CIFAR-100, alpha = 0'."""
        constant = self.measure.constant(self.runs[0].config().algorithm)  # of no data
        return self.headed(self.column.title) if constant is None else self.column.title

    def headed(self, title: str) -> str:
        """Returns a title with the data that are used, in front of those that the title names."""
        used, _, wanted = self.data.partition(" for ")
        named = wanted or used.partition(" at ")[0]
        if named and named.lower() in title.lower():
            return f"{used} for {title}" if wanted else title.replace(named, used, 1)
        return ", ".join(filter(None, (self.data, title)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reproduced:
    """Common to all tables and figures that need computation.

    Attributes:
      base: fields that all runs share.
      seeds: seeds at paper scale.
      stated: claims about it that are not in claims.csv.
      cifar16: the stand-in of CIFAR-10 in words; empty: it has none.
    """

    name: str
    base: Variation
    seeds: tuple[int, ...] = (0, 1, 2)
    stated: tuple[Claim, ...] = ()
    cifar16: str = ""

    @property
    def title(self) -> str:
        """Its subject, one line."""
        return subjects()[self.name]["title"]

    def titled(self, scale: str) -> str:
        """Returns its subject at a scale, with what stands in for the paper's data there."""
        names = ", ".join(dict.fromkeys(filter(None, self.stand_ins(scale))))
        return f"{self.title} ({names})" if names else self.title

    def stand_ins(self, scale: str) -> list[str]:
        """Returns what stands in for the data of each cell or run, see `stand_in`."""
        raise NotImplementedError

    @property
    def cost(self) -> str:
        """Cost at paper scale, in words."""
        return subjects()[self.name]["cost"]

    @property
    def standin(self) -> str:
        """Data and networks at trend scale, and what else is smaller there."""
        return subjects()[self.name]["standin"].replace("{cifar16}", self.cifar16)

    @functools.cached_property
    def claims(self) -> tuple[Claim, ...]:
        """Statements of the paper about it."""
        axes = {"row": "rows", "column": "columns", "variant": "variants"}
        titles = {axis: {v.name: v.title for v in getattr(self, field, ())} for axis, field in axes.items()}
        return self.stated + claims_of(self.name, titles)

    def seeds_at(self, scale: str) -> tuple[int, ...]:
        """Returns the seeds at a scale; smoke has the first one of trend."""
        return {"paper": self.seeds, "trend": TREND_SEEDS}.get(scale, TREND_SEEDS[:1])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Item(Reproduced):
    """A table, or a figure that shows curves or accuracies against a parameter.

    Attributes:
      variants: variants of the third axis, within a cell.
      draw: 'table', 'curves' (a panel per column) or 'sweep' (a line per row and variant, columns on the axis).
      table: (paper, table) of the printed numbers; None: nothing is printed.
      paired: whether it is a table of our own, with 95 % intervals and paired differences from the first row.
    """

    rows: tuple[Variation, ...]
    columns: tuple[Variation, ...]
    variants: tuple[Variation, ...] = (Variation("base"),)
    overrides: tuple[Override, ...] = ()
    draw: str = "table"
    axis: str = ""
    table: tuple[str, str] | None = None
    paired: bool = False

    def cells(self, scale: str) -> list[Cell]:
        """Returns the cells at a scale; of a printed table those with a printed number, and our own additions."""
        cells = []
        for row, column, variant in itertools.product(self.rows, self.columns, self.variants):
            printed = printed_cells.printed().get(self.printed_key(row, column, variant))
            variations = [self.base, column, row, variant]
            variations += [o.variation for o in self.overrides if o.applies_to(row, column, variant)]
            ours = any(variation.ours for variation in (row, column, variant))
            absent = scale == "trend" and any(variation.absent for variation in variations)
            if absent or (self.table and printed is None and not ours):
                continue
            cells.append(self._cell(scale, row, column, variant, variations, printed))
        return cells

    def stand_ins(self, scale):
        return [cell.data for cell in self.cells(scale)]

    def printed_key(self, row: Variation, column: Variation, variant: Variation) -> tuple[str, ...]:
        """Returns the key of a printed number, its values of KEY; without a `table` that of none."""
        values: dict[str, str] = dict(zip(("paper", "table"), self.table or ("", ""), strict=True))
        for name, text in (*self.base.printed, *column.printed, *variant.printed, *row.printed):
            values[name] = f"{values[name]};{text}" if name == "variant" and values.get(name) else text
        return tuple(values.get(name, "") for name in printed_cells.KEY)

    def _cell(self, scale: str, row, column, variant, variations: list[Variation], printed) -> Cell:
        forking = [variation for variation in variations if variation.fork is not None]
        shared = _merged(scale, [variation for variation in variations if variation not in forking])

        def run(grid_fields: Fields) -> Run:
            unforked = Run(_at(scale, shared | grid_fields), _warm_start(scale, variations))
            if not forking:
                return unforked
            changes = _merged(scale, forking)
            return unforked.forked(forking[0].fork or 0.0, shrunk_wrap(changes) if scale == "smoke" else changes)

        grids = [variation.grid for variation in variations if variation.grid] if scale == "paper" else []
        # The last grid is the most specific one: an override's replaces the row's.
        runs = tuple(run(fields) for fields in (grids[-1] if grids else (Fields(),)))
        read = next((s.readout(scale) for s in reversed(variations) if s.read or s.trend_read), "")
        measure = next((s.measure for s in reversed(variations) if s.measure != MeanLast()), MeanLast())
        metric = next((s.metric for s in reversed(variations) if s.metric and scale == "paper"), "accuracy")
        reference = None
        if measure.reference is not None:
            reference = Run(_at(scale, _merged(scale, variations[:2]) | measure.reference))
        wanted = _merged("paper", variations).get("dataset")
        own = stand_in(runs[0].config().dataset, wanted) if wanted else ""
        return Cell(row, column, variant, runs, read, measure, reference, printed, measure.metric or metric, own)


def _at(scale: str, fields: Fields) -> Fields:
    return shrunk(fields) if scale == "smoke" else fields


def _warm_start(scale: str, variations: list[Variation]) -> Checkpoint | None:
    """Returns the checkpoint of another run whose parameters a run starts with; None for random ones."""
    warm_start = next((variation.warm_start for variation in reversed(variations) if variation.warm_start), None)
    if warm_start is None:
        return None
    variation, part = warm_start
    run = Run(_at(scale, variation.fields(scale)))
    return Checkpoint(run, run.num_rounds, part)


def _merged(scale: str, variations: list[Variation]) -> Fields:
    return functools.reduce(lambda merged, variation: merged | variation.fields(scale), variations, Fields())


@dataclasses.dataclass(frozen=True, kw_only=True)
class Analysis(Reproduced):
    """A figure computed from the checkpoints of one or several runs; the first of its seeds is drawn.

    Attributes:
      kind: kind of the picture, a module of experiments.figures: plane, line, factors, forgetting, labels.
      runs: changes of each run; their names are those of panels or curves.
      at: checkpoints that are analyzed, as shares of the rounds in (0, 1].
      ends: further checkpoints, counted back from the last round.
      trend_options: options at trend and smoke scale; None: the same.
      shows: which panels of its kind are drawn; empty: all.
    """

    kind: str
    runs: tuple[Variation, ...]
    seeds: tuple[int, ...] = (0,)
    at: tuple[float, ...] = (1.0,)
    ends: tuple[int, ...] = ()
    options: Fields = Fields()
    trend_options: Fields | None = None
    shows: tuple[str, ...] = ()

    def seeds_at(self, scale: str) -> tuple[int, ...]:
        """Returns the seeds at a scale: a figure without claims needs only the one that is drawn."""
        seeds = super().seeds_at(scale)
        return seeds if self.claims else seeds[:1]

    def trajectories(self, scale: str) -> dict[str, Run]:
        """Returns name -> run at a scale, without those that are absent there."""
        runs = {}
        for variation in self.runs:
            if scale == "trend" and (variation.absent or self.base.absent):
                continue
            own, shared = variation.fields(scale), self.base.fields(scale)
            if variation.fork is None:
                runs[variation.name] = Run(_at(scale, shared | own))
            else:
                runs[variation.name] = Run(_at(scale, shared)).forked(variation.fork, own)
        return runs

    def stand_ins(self, scale):
        papers = self.trajectories("paper")
        runs = self.trajectories(scale).items()
        return [stand_in(run.config().dataset, papers[name].config().dataset) for name, run in runs]

    def checkpoints(self, scale: str) -> tuple[int, ...]:
        """Returns the rounds whose checkpoints are analyzed; none where all runs are absent."""
        runs = list(self.trajectories(scale).values())
        if not runs:
            return ()
        rounds = runs[0].num_rounds
        chosen = {max(1, round(share * rounds)) for share in self.at} | {rounds - back for back in self.ends}
        return tuple(sorted(chosen))

    def options_at(self, scale: str) -> Fields:
        """Returns the options of its kind at a scale."""
        return self.options if scale == "paper" or self.trend_options is None else self.trend_options


@dataclasses.dataclass(frozen=True)
class Sketch:
    """An illustration, which needs no computation."""

    name: str
    why: str

    @property
    def title(self) -> str:
        """Its subject, one line."""
        return subjects()[self.name]["title"]


# An entry of the catalogue.
AnyItem = Item | Analysis | Sketch


def file_stem(item: AnyItem) -> str:
    """Returns the name of an item's files, without their suffix."""
    return item.name.replace("/", "_")
