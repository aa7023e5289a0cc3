"""Presets: flagfiles by name (`--flagfile=wima_cifar10_alpha0`).

Some are files of the folder `flags`; those of the papers are generated from the cells that presets.csv names.
"""

import functools
import os
import pathlib
import textwrap
from collections.abc import Sequence

from fedwin.errors import UserError
from fedwin.registry import nearest

from ..cli.command_line import flags_of
from ..cli.flag_errors import read_file
from .catalogue import item
from .cell_flags import cell_of, config_of, table_of
from .items import Cell, Item
from .remarks import lines_of

FOLDER = pathlib.Path(__file__).parents[1] / "flags"
WIDTH = 118


# Preset of a paper -> the cell that it trains, its first variant if none is named, and a remark for its header.
CELLS = {line["preset"]: line for line in lines_of(pathlib.Path(__file__).with_suffix(".csv"))}


def names() -> list[str]:
    """Returns the names of all presets, sorted."""
    return sorted([*CELLS, *(path.stem for path in FOLDER.glob("*.flags"))])


@functools.cache
def text(name: str) -> str:
    """Returns a preset as a flagfile: comments with subject, command, expected time and accuracy, then its flags."""
    if name not in CELLS:
        return (FOLDER / f"{name}.flags").read_text(encoding="utf-8")
    place = CELLS[name]
    table = table_of(item(place["item"]))
    cell = cell_of(table, place["row"], place["column"], place["variant"])
    paper, number = table.table or ("", "")
    shown = [cell.column.title, cell.row.title, *([cell.variant.title] if len(table.variants) > 1 else [])]
    remarks = (
        f"{paper.upper()}, Table {number}: {'; '.join(shown)}.",
        f"fedwin train --flagfile={name} --data_dir=DIR",
        f"Another cell: fedwin reproduce {table.name} --row=... --column={cell.column.name} --print_flags",
        *([place["remark"]] if place["remark"] else []),
        f"Expected time: {table.cost}.",
        *_expected(table, cell),
    )
    wrapped = (textwrap.wrap(remark, WIDTH, break_long_words=False, break_on_hyphens=False) for remark in remarks)
    return "\n".join([*(f"# {line}" for lines in wrapped for line in lines), *flags_of(config_of(table, cell))]) + "\n"


def _expected(table: Item, cell: Cell) -> list[str]:
    """Returns the printed cells of this column; rows with another wrapper are on separate lines."""
    adaptive = {name for o in table.overrides if o.variation.fork is not None for name in o.rows}
    others = [row for row in table.rows if row.name in adaptive]
    remarks = [f"Expected: paper: {'; '.join(_printed(table, cell, {row.name for row in table.rows} - adaptive))}."]
    if others:
        algorithms = " or ".join(f"--algorithm={row.paper['algorithm']}" for row in others)
        shown = ", ".join(_printed(table, cell, adaptive))
        remarks.append(f"{shown}, with {algorithms} and placement=pre in the --wrap line.")
    return remarks


def _printed(table: Item, cell: Cell, rows: set[str]) -> list[str]:
    """Returns 'FedAvg 64.37 -> 69.95' for every row that has numbers in a cell's column."""
    metric = lambda variant: dict(variant.printed).get("metric", "")
    numbers: dict[str, list[str]] = {}
    for other in table.cells("paper"):
        alike = other.column.name == cell.column.name and metric(other.variant) == metric(cell.variant)
        if alike and other.row.name in rows:
            numbers.setdefault(other.row.title, []).append(str(other.printed).partition(" ")[0])
    return [f"{title} {' -> '.join(found)}" for title, found in numbers.items()]


def checked(name: str) -> str:
    """Returns the name of a preset, given with or without the suffix of a file; raises UserError if there is none."""
    known = names()
    if name.removesuffix(".flags") not in known:
        hint = nearest(pathlib.Path(name).stem, known)
        raise UserError(f"flagfile={name}: neither a file nor a preset.{hint} `fedwin list presets` names all.")
    return name.removesuffix(".flags")


def expanded(flagfile: str, within: tuple[pathlib.Path, ...] = ()) -> list[str]:
    """Returns the flags of a file, or of the preset of that name, with those of files and presets that it names.

    Args:
      within: the files that name this one; it may be beside the last of them.

    Raises:
      UserError: there is neither a file nor a preset, or the file can't be read or names itself.
    """
    places = (pathlib.Path(flagfile).expanduser(), *(above.parent / flagfile for above in within[-1:]))
    path = next((place.resolve() for place in places if os.path.isfile(place)), None)
    if path is None:
        return [line for line in text(checked(flagfile)).splitlines() if line.startswith("--")]
    if path in within:
        raise UserError(f"flagfile={flagfile}: it is named again by {within[-1]}; remove that line.")
    lines = map(str.strip, read_file(path).splitlines())
    return resolve([line for line in lines if line and not line.startswith(("#", "//"))], (*within, path))


def resolve(arguments: Sequence[str], within: tuple[pathlib.Path, ...] = ()) -> list[str]:
    """Returns the command line with the flags of files and presets in place of their names."""
    resolved: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        flag, equals, value = argument.partition("=")
        if flag not in ("--flagfile", "-flagfile"):
            resolved.append(argument)
        elif equals or (value := next(rest, "")):
            resolved += expanded(value, within)
        else:
            resolved.append(argument)
    return resolved


def table() -> str:
    """Returns a line per preset: its name and its subject."""
    width = max(map(len, names()))
    lines = (f"{name:<{width}}  {text(name).splitlines()[0].removeprefix('# ')}" for name in names())
    return "\n".join(line if len(line) <= 120 else f"{line[:117]}..." for line in lines)
