"""A table of ours beside the printed one, in CSV and Markdown, and what is to be known about it."""

import itertools
import pathlib
from collections.abc import Iterable
from typing import Any

from ..papers.items import Cell, Item
from ..papers.measures import SHARE
from ..papers.readings import READINGS
from ..papers.trajectories import Run
from ..table_files import markdown, number, write_csv
from . import paired, tuning
from .places import stem_of
from .shelf import Shelf
from .values import Value
from .verdicts import verdicts

# Digits that are shown of numbers of a unit, others have two.
DIGITS = {SHARE: 3, "rounds": 0}

HEAD = (
    "row",
    "column",
    "variant",
    "read-out",
    "unit",
    "printed",
    "printed std",
    "ours",
    "std",
    "difference",
    "z",
    "seeds",
    "rounds done",
    "rounds",
    "run",
    "fingerprint",
    "command",
    "grid, held-out accuracy",
)


def csv_rows(shelf: Shelf, found: Iterable[Value]) -> list[list[Any]]:
    """Returns a row per number, by HEAD."""
    rows = []
    for value in found:
        cell, run = value.cell, value.run
        printed = cell.printed
        rows.append(
            [
                *cell.position,
                cell.read or "model",
                cell.measure.unit,
                printed.value if printed else None,
                printed.std if printed else None,
                value.mean,
                value.std,
                value.difference,
                value.z,
                len(value.numbers),
                *value.rounds,
                run.key,
                *_provenance(shelf, run),
                tuning.told(shelf, cell),
            ]
        )
    return rows


def _provenance(shelf: Shelf, run: Run) -> tuple[str, str]:
    """Returns fingerprint and command of a run, of all of its directories."""
    records = shelf.records(run)
    fingerprints = dict.fromkeys(record.header.get("fingerprint", "") for record in records)
    told = dict.fromkeys(record.header.get("command", "") for record in records)
    return " ".join(fingerprints), " ; ".join(filter(None, told))


def shown(value: Value) -> str:
    """Returns a number as a reader wants it: at paper scale 'printed / ours', ours in bold where it agrees."""
    digits = DIGITS.get(value.cell.measure.unit, 2)
    ended = value.rounds[0] == value.rounds[1]
    ours = "never" if value.each and ended and value.mean is None else number(value.mean, digits)
    ours = "diverged" if value.mean is None and value.diverged else ours
    if value.std is not None:
        ours += f" +- {value.std:.{digits}f}"
    if value.mean is not None and 0 < value.rounds[0] < value.rounds[1]:
        ours += f" (round {value.rounds[0]:,} of {value.rounds[1]:,})"
    if value.reproduced:
        ours = f"**{ours}**"
    beside = value.cell.printed is not None and value.scale == "paper"
    return f"{value.cell.printed} / {ours}" if beside else ours


def grid(item: Item, found: list[Value]) -> str:
    """Returns the table in Markdown: methods down, data and variants across; 'printed / ours' in a cell."""
    titles = {(v.cell.column.name, v.cell.variant.name): _heading(item, v.cell) for v in found}
    places = itertools.product((c.name for c in item.columns), (v.name for v in item.variants))
    columns = [place for place in places if place in titles]
    by_place = {v.cell.position: v for v in found}
    rows = []
    for row in dict.fromkeys(v.cell.row for v in found):
        cells = [by_place.get((row.name, column, variant)) for column, variant in columns]
        rows.append([row.title, *("" if value is None else shown(value) for value in cells)])
    return markdown(["", *(titles[column] for column in columns)], rows)


def _heading(item: Item, cell: Cell) -> str:
    return cell.column.title if len(item.variants) == 1 else f"{cell.column.title}: {cell.variant.title}"


def section(item: Item, scale: str, shelf: Shelf, found: list[Value], drawn: Iterable[str] = ()) -> str:
    """Returns an item's part of the report in Markdown.

    Args:
      item: the table or figure.
      scale: smoke, trend or paper.
      shelf: where records are.
      found: its numbers.
      drawn: paths of its pictures, as the report names them.
    """
    done = [value for value in found if value.each]
    blocks = [f"### {item.name} ({scale}): {item.title}"]
    if scale != "paper" and item.standin:
        blocks.append(f"{'Setting' if item.paired else 'Stand-in'}: {item.standin}")
    if item.draw == "table" or item.draw == "sweep":
        blocks += paired.blocks(shelf, item, done) if item.paired else [grid(item, done)]
    blocks += [f"![{item.title}]({path})" for path in drawn]
    claims = [f"- {v.claim.text} **{v}**" for v in verdicts(item, found)]
    blocks += ["\n".join(claims)] if claims else []
    if (item.name, scale) in READINGS:
        blocks.append(READINGS[item.name, scale])
    notes = [f"- {line}" for line in item.assumed]
    blocks += ["Not stated in the paper, and taken here:\n\n" + "\n".join(notes)] if notes and scale == "paper" else []
    return "\n\n".join(blocks)


def write(
    item: Item, scale: str, shelf: Shelf, found: list[Value], folder: pathlib.Path, drawn: Iterable[str] = ()
) -> None:
    """Writes NAME.csv and NAME.md of an item."""
    stem = stem_of(item)
    write_numbers(item, shelf, found, folder / f"{stem}.csv")
    (folder / f"{stem}.md").write_text(section(item, scale, shelf, found, drawn) + "\n", encoding="utf-8")


def write_numbers(item: Item, shelf: Shelf, found: list[Value], path: pathlib.Path) -> None:
    """Writes an item's numbers to a CSV file, each with what is printed, its run, its fingerprint and its command."""
    head, rows = list(HEAD), csv_rows(shelf, found)
    if item.paired:
        head += paired.HEAD
        rows = [[*row, *more] for row, more in zip(rows, paired.columns(shelf, item, found), strict=True)]
    write_csv(path, head, rows)
