"""Flags of single cells, and the papers' presets in experiments/flags, which are generated from the catalogue.

python -m experiments.papers.flag_files    writes the presets
"""

import dataclasses
import pathlib
import textwrap
from typing import NamedTuple

from fedwin.errors import UserError
from fedwin.registry import nearest
from fedwin.runs.config import Config

from ..cli.command_line import flags_of, train_command
from .catalogue import item
from .items import AnyItem, Cell, Item, Variation

FOLDER = pathlib.Path(__file__).parent.parent / "flags"
WIDTH = 118


class Preset(NamedTuple):
    """The cell that a preset trains.

    Attributes:
      item: name of the table.
      row: name of the row.
      column: name of the column.
      variant: name of the variant; empty: the first.
      remark: a further line of its header.
    """

    item: str
    row: str
    column: str
    variant: str = ""
    remark: str = ""


BASE, PLAIN = "Without the --wrap line it is the base method.", "Without the --loss line it is FedAvg."
PRESETS = {
    "wima_cifar10_alpha0": Preset("wima/table2", "fedavg", "cifar10_alpha0", "wima"),
    "wima_cifar10_alpha005": Preset("wima/table2", "fedavg", "cifar10_alpha005", "wima"),
    "wima_cifar100_alpha0": Preset("wima/table2", "fedavg", "cifar100_alpha0", "wima"),
    "wima_cifar100_alpha05": Preset("wima/table2", "fedavg", "cifar100_alpha05", "wima"),
    "wima_cifar100_pam": Preset("wima/table2", "fedavg", "cifar100_pam", "wima"),
    "wima_femnist": Preset("wima/table2", "fedavg", "femnist", "wima"),
    "wima_shakespeare": Preset(
        "wima/table2", "fedavg", "shakespeare", "wima", "The paper's metric is accuracy_fedjax."
    ),
    "ima_fmnist_shards": Preset("ima/table1", "fedavg", "fmnist_shards", "ima", BASE),
    "ima_cifar10_shards": Preset("ima/table1", "fedavg", "cifar10_cnn_shards", "ima", BASE),
    "ima_cifar10_dirichlet": Preset("ima/table1", "fedavg", "cifar10_cnn_dirichlet", "ima", BASE),
    "ima_cifar100_pachinko": Preset("ima/table1", "fedavg", "cifar100_vgg", "ima", BASE),
    "ima_digit5_shards": Preset("ima/table1", "fedavg", "digit5_shards", "ima", BASE),
    "ima_pacs_shards": Preset("ima/table1", "fedavg", "pacs_shards", "ima", BASE),
    "ghb_cifar10_lenet_cross_silo": Preset("ghb/table3", "fedhbm", "cifar10_noniid"),
    "ghb_cifar100_lenet_cross_silo": Preset("ghb/table3", "fedhbm", "cifar100_noniid"),
    "ghb_shakespeare": Preset("ghb/table3", "fedhbm", "shakespeare_noniid"),
    "ghb_cifar10_lenet_cross_device": Preset("ghb/table4", "fedhbm", "cifar10_noniid"),
    "ghb_cifar10_resnet20": Preset("ghb/table10", "fedhbm", "cifar10_noniid"),
    "wsm_cifar10": Preset("wsm/table3_1", "lr01", "cifar10", "wsm", PLAIN),
    "wsm_cifar100": Preset("wsm/table3_1", "lr01", "cifar100", "wsm", PLAIN),
}


def _chosen(axis: str, name: str, variations: tuple[Variation, ...], table: Item) -> str:
    """Returns the name of a row, column or variant; '' if none is requested; raises UserError if there is none."""
    names = [variation.name for variation in variations]
    if name and name not in names:
        raise UserError(
            f"{axis}={name}: {table.name} has no such {axis}.{nearest(name, names)} It has: {', '.join(names)}."
        )
    return name


def _table(item: AnyItem) -> Item:
    if not isinstance(item, Item):
        raise UserError(f"{item.name} has no rows and columns; name a table, such as wima/table2.")
    return item


def cell_of(item: AnyItem, row: str, column: str, variant: str = "", scale: str = "paper") -> Cell:
    """Returns a cell.

    Args:
      item: a table, or a figure that has rows and columns.
      row: its name; empty: the first.
      column: its name; empty: the first.
      variant: its name; empty: the first that the row and column have.
      scale: smoke, trend or paper.

    Raises:
      UserError: there is no such cell.
    """
    table = _table(item)
    axes = (("row", row, table.rows), ("column", column, table.columns), ("variant", variant, table.variants))
    chosen = [_chosen(axis, name, variations, table) for axis, name, variations in axes]
    for cell in table.cells(scale):
        if all(name in ("", own) for name, own in zip(chosen, cell.position, strict=True)):
            return cell
    cell_name = ", ".join(name for name in chosen if name)
    what = "prints nothing" if scale == "paper" else f"has nothing at scale {scale}"
    raise UserError(f"{table.name} {what} at {cell_name}; choose another cell.")


def config_of(table: Item, cell: Cell, scale: str = "paper") -> Config:
    """Returns the Config of a cell's run, the first of its grid; a fork is trained from the first round on."""
    observe = {"observe": [cell.read]} if cell.read else {}
    return cell.runs[0].config(seeds=list(table.seeds_at(scale)), **observe)


def flag_text(item: AnyItem, row: str, column: str, variant: str = "", scale: str = "paper") -> str:
    """Returns the flags of `fedwin train` for a cell, one per line; arguments as for `cell_of`."""
    table, cell = _table(item), cell_of(item, row, column, variant, scale)
    config, checkpoint = config_of(table, cell, scale), cell.runs[0].parent
    if checkpoint is None or checkpoint.part is None:
        return "\n".join(flags_of(config))
    # Training starts with parameters of another run, which has to be trained first.
    folder = f"runs/{checkpoint.run.key}"
    first = checkpoint.run.config(seeds=list(table.seeds_at(scale)), out_dir=folder)
    warm = dataclasses.replace(config, init_from=f"{folder}@{checkpoint.round}:part={checkpoint.part}")
    return "\n".join([f"# first: {train_command(first)}", *flags_of(warm)])


def preset_text(name: str) -> str:
    """Returns the content of a preset's file: its cell, command, expected time and accuracy, and its flags.

    Args:
      name: a key of PRESETS.
    """
    preset = PRESETS[name]
    table = _table(item(preset.item))
    cell = cell_of(table, preset.row, preset.column, preset.variant)
    paper, number = table.table or ("", "")
    shown = [cell.column.title, cell.row.title, *([cell.variant.title] if len(table.variants) > 1 else [])]
    remarks = (
        f"{paper.upper()}, Table {number}: {'; '.join(shown)}.",
        f"python -m experiments.train --flagfile=experiments/flags/{name}.flags --data_dir=DIR",
        f"Another cell: fedwin reproduce {preset.item} --row=... --column={cell.column.name} --print_flags",
        *([preset.remark] if preset.remark else []),
        f"Expected time: {table.cost}.",
        *_expected(table, cell),
    )
    lines = [f"# {line}" for remark in remarks for line in _wrapped(remark)]
    return "\n".join([*lines, *flags_of(config_of(table, cell))]) + "\n"


def _wrapped(remark: str) -> list[str]:
    """Returns a remark in lines of at most WIDTH characters; commands are not wrapped."""
    if remark.startswith("python "):
        return [remark]
    return textwrap.wrap(remark, WIDTH, break_long_words=False, break_on_hyphens=False)


def _expected(table: Item, cell: Cell) -> list[str]:
    """Returns the printed cells of this column; rows with another wrapper are on separate lines."""
    adaptive = {name for o in table.overrides if o.variation.fork is not None for name in o.rows}
    usual = [row for row in table.rows if row.name not in adaptive]
    remarks = [f"Expected: paper: {'; '.join(_printed(table, cell, usual))}."]
    others = [row for row in table.rows if row.name in adaptive]
    if others:
        algorithms = " or ".join(f"--algorithm={row.paper['algorithm']}" for row in others)
        shown = ", ".join(_printed(table, cell, others))
        remarks.append(f"{shown}, with {algorithms} and placement=pre in the --wrap line.")
    return remarks


def _printed(table: Item, cell: Cell, rows: list[Variation]) -> list[str]:
    """Returns 'FedAvg 64.37 -> 69.95' for every row that has numbers in a cell's column."""
    metrics = dict(cell.variant.printed).get("metric", "")
    lines = []
    for row in rows:
        numbers = [
            str(other.printed).partition(" ")[0]
            for other in table.cells("paper")
            if other.row.name == row.name
            and other.column.name == cell.column.name
            and dict(other.variant.printed).get("metric", "") == metrics
        ]
        if numbers:
            lines.append(f"{row.title} {' -> '.join(numbers)}")
    return lines


def write(folder: pathlib.Path = FOLDER) -> None:
    """Writes the papers' presets into a folder."""
    for name in PRESETS:
        (folder / f"{name}.flags").write_text(preset_text(name), encoding="utf-8")


if __name__ == "__main__":
    write()
