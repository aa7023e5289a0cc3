"""Cells of tables by their names, and the flags of `fedwin train` for one."""

import dataclasses

from fedwin.errors import UserError
from fedwin.registry.ranges import one_of
from fedwin.runs.config import Config

from ..cli.command_line import flags_of, train_command
from .items import AnyItem, Cell, Item


def table_of(item: AnyItem) -> Item:
    """Returns an item that has rows and columns; raises UserError if it has none."""
    if not isinstance(item, Item):
        raise UserError(f"{item.name} has no rows and columns; name a table, such as wima/table2.")
    return item


def cell_of(item: AnyItem, row: str, column: str, variant: str = "", scale: str = "paper") -> Cell:
    """Returns a cell; an empty name stands for the first of its axis; raises UserError if there is no such cell."""
    table = table_of(item)
    chosen = (row, column, variant)
    axes = (("row", table.rows), ("column", table.columns), ("variant", table.variants))
    for name, (axis, variations) in zip(chosen, axes, strict=True):
        names = [variation.name for variation in variations]
        one_of(f"{table.name}: {axis}", name or names[0], names)
    for cell in table.cells(scale):
        if all(name in ("", own) for name, own in zip(chosen, cell.position, strict=True)):
            return cell
    lacks = "prints nothing" if scale == "paper" else f"has nothing at scale {scale}"
    raise UserError(f"{table.name} {lacks} at {', '.join(filter(None, chosen))}; choose another cell.")


def config_of(table: Item, cell: Cell, scale: str = "paper") -> Config:
    """Returns the Config of a cell's run, the first of its grid; a fork is trained from the first round on."""
    observe = {"observe": [cell.read]} if cell.read else {}
    return cell.runs[0].config(seeds=list(table.seeds_at(scale)), **observe)


def flag_text(item: AnyItem, row: str, column: str, variant: str = "", scale: str = "paper") -> str:
    """Returns the flags of `fedwin train` for a cell, one per line; arguments as for `cell_of`."""
    table, cell = table_of(item), cell_of(item, row, column, variant, scale)
    config, checkpoint = config_of(table, cell, scale), cell.runs[0].parent
    if checkpoint is None or checkpoint.part is None:
        return "\n".join(flags_of(config))
    # Training starts with parameters of another run, which has to be trained first.
    folder = f"runs/{checkpoint.run.key}"
    first = checkpoint.run.config(seeds=list(table.seeds_at(scale)), out_dir=folder)
    warm = dataclasses.replace(config, init_from=f"{folder}@{checkpoint.round}:part={checkpoint.part}")
    return "\n".join([f"# first: {train_command(first)}", *flags_of(warm)])
