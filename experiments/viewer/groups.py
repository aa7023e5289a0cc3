"""Groups of runs that the viewer shows together: folders of runs, and tables and figures of papers."""

import dataclasses
import itertools
import pathlib
from collections.abc import Iterable

from fedwin.errors import UserError

from ..figures.sources import readout_name
from ..papers.catalogue import catalogue
from ..papers.items import Cell, Item
from ..papers.scales import SCALES
from ..papers.trajectories import Run
from ..records import MODEL, Line, Record
from ..reproduction import tables
from ..reproduction.numbers import Value, values
from ..reproduction.results import Results, stored
from ..reproduction.verdicts import verdicts
from . import runs
from .runs import ViewedRun

# Heading of folders of runs, among those of papers.
FOLDERS = "folders"


@dataclasses.dataclass(frozen=True)
class Entry:
    """A read-out of a run in a group, and the part (panel) of the group that it is shown in; '': there is one part."""

    run: str
    readout: str
    label: str
    panel: str = ""


@dataclasses.dataclass(frozen=True)
class Group:
    """Runs that are shown together.

    Attributes:
      name: name of the folder or table; groups have different names.
      heading: heading under which the page lists it; an address may name its first group.
      numbers: numbers of a table, a row per number: row, column, printed, ours, standard deviation, seeds, unit.
      claims: claims of the paper: (claim, verdict).
    """

    name: str
    heading: str
    note: str
    entries: list[Entry]
    numbers: list[tuple] = dataclasses.field(default_factory=list)
    claims: list[tuple[str, str]] = dataclasses.field(default_factory=list)


def of_folders(viewed: Iterable[ViewedRun]) -> list[Group]:
    """Returns a group of all runs and, if they are in several folders, one for each folder."""
    every = list(viewed)
    folders: dict[str, list[ViewedRun]] = {}
    for run in every:
        folders.setdefault(run.folder, []).append(run)
    groups = [Group("all runs", FOLDERS, "", _entries(every, ""))]
    if len(folders) > 1:
        groups += [Group(name or "top folder", FOLDERS, "", _entries(some, name)) for name, some in folders.items()]
    return groups


def _entries(some: Iterable[ViewedRun], folder: str) -> list[Entry]:
    """Returns the read-outs of runs; a run without a curve has an entry of the model, so that it is in the table."""
    entries = []
    for run in some:
        label = pathlib.Path(run.name).name if folder else run.name
        readouts = dict.fromkeys(curve["readout"] for curve in run.curves) or {MODEL: None}
        entries += [Entry(run.name, readout, label) for readout in readouts]
    return entries


def kept() -> tuple[list[ViewedRun], list[Group]]:
    """Returns the stored results: runs, and a group per table or figure and scale; raises UserError without any."""
    viewed: dict[str, ViewedRun] = {}
    groups = []
    for scale in (scale for scale in SCALES if scale != "smoke"):
        store = stored(scale)
        for item in catalogue().values():
            if isinstance(item, Item):
                numbers = [value for value in values(store, item) if value.by_seed and value.rounds[1]]
                if numbers:
                    groups.append(_of_item(item, scale, store, numbers, viewed))
    if not groups:
        raise UserError("there are no stored results; those of the project are in its repository and in its wheel.")
    return list(viewed.values()), sorted(groups, key=lambda group: group.heading)


def _of_item(item: Item, scale: str, store: Results, numbers: list[Value], viewed: dict[str, ViewedRun]) -> Group:
    entries: dict[Entry, None] = {}
    for value in numbers:
        name = f"{value.run.key} ({scale})"
        if name not in viewed:
            viewed[name] = _viewed(store, value.run, name)
        readout = readout_name(value.cell.read)
        if any(curve["readout"] == readout for curve in viewed[name].curves):
            entries[Entry(name, readout, value.cell.row.title, _panel(item, value.cell))] = None
    rows = []
    for value in numbers:
        # Numbers of a stand-in are not compared with printed ones.
        printed = str(value.cell.printed) if value.cell.printed and value.scale == "paper" else None
        ours = value.mean, value.std, len(value.defined), value.cell.measure.unit
        rows.append((value.cell.row.title, _panel(item, value.cell), printed, *ours))
    claims = [(f"{each.claim.text} {each.claim.section}".strip(), str(each)) for each in verdicts(item, numbers)]
    standin = item.standin if scale != "paper" else ""
    note = " ".join(filter(None, (f"{item.titled(scale)}.", tables.legend(item, numbers), standin)))
    paper = item.name.partition("/")[0]
    return Group(f"{item.name} ({scale})", paper, note, list(entries), rows, claims)


def _panel(item: Item, cell: Cell) -> str:
    """Returns column and variant of a cell, as far as the table has several."""
    several = ((item.columns, cell.heading), (item.variants, cell.variant.title))
    return ", ".join(title for axis, title in several if len(axis) > 1)


def _viewed(store: Results, run: Run, name: str) -> ViewedRun:
    records = store.records(run)
    every = itertools.chain(_before(store, run), *(record.lines for record in records))
    lines = {(line["seed"], line["round"]): line for line in every}
    fingerprints = " ".join(dict.fromkeys(record.about.get("fingerprint", "") for record in records))
    ends = {seed: end for record in records for seed, end in (record.summary or {"seeds": {}})["seeds"].items()}
    about = records[0].about | {"fingerprint": fingerprints}
    merged = Record(about, [lines[place] for place in sorted(lines)], {"seeds": ends})
    return runs.of_record(merged, name, command=tables.commands(store, run))


def _before(store: Results, run: Run) -> list[Line]:
    """Returns the evaluations of the model of a fork's parents before the fork, of the seeds that the fork has."""
    if run.parent is None or run.parent.part is not None:
        return []
    seeds = {seed for record in store.records(run) for seed in record.seeds}
    lines = itertools.chain(_before(store, run.parent.run), *(each.lines for each in store.records(run.parent.run)))
    return [
        {name: value for name, value in line.items() if not isinstance(value, dict) or name == MODEL}
        for line in lines
        if line["seed"] in seeds and line["round"] < run.parent.round
    ]
