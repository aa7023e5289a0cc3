"""The flags of single cells, and the papers' presets in experiments/flags, which are made of the catalogue.

python -m experiments.papers.flag_files    writes the presets
"""

import pathlib
import textwrap
from typing import NamedTuple

from fedwin.errors import UserError
from fedwin.registry import nearest
from fedwin.runs.config import Config

from ..cli.command_line import flags_of
from .catalogue import item
from .items import Analysis, Cell, Item, Sketch, Variation

FOLDER = pathlib.Path(__file__).parent.parent / "flags"
WIDTH = 118


class Preset(NamedTuple):
    """Which cell a preset trains.

    Attributes:
      item: the table.
      row: its name.
      column: its name.
      variant: its name; empty: the first.
      remark: a line of its header.
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


def _named(kind: str, name: str, entries: tuple[Variation, ...], one: Item) -> Variation:
    known = [entry.name for entry in entries]
    if name not in known:
        raise UserError(
            f"{kind}={name}: {one.name} has no such {kind}.{nearest(name, known)} It has: {', '.join(known)}."
        )
    return entries[known.index(name)]


def _table(one: Item | Analysis | Sketch) -> Item:
    if not isinstance(one, Item):
        raise UserError(f"{one.name} has no rows and columns; name a table, such as wima/table2.")
    return one


def cell_of(one: Item | Analysis | Sketch, row: str, column: str, variant: str = "") -> Cell:
    """Returns a cell at paper scale.

    Args:
      one: a table, or a figure that has rows and columns.
      row: its name; empty: the first.
      column: its name; empty: the first.
      variant: its name; empty: the first that there is.

    Raises:
      UserError: there is no such cell.
    """
    one = _table(one)
    asked = [("row", row, one.rows), ("column", column, one.columns), ("variant", variant, one.variants)]
    chosen = [_named(kind, name, entries, one).name if name else "" for kind, name, entries in asked]
    for cell in one.cells("paper"):
        if all(name in ("", there) for name, there in zip(chosen, cell.position, strict=True)):
            return cell
    raise UserError(f"{one.name} prints nothing at {', '.join(name for name in chosen if name)}; choose another cell.")


def config_of(one: Item, cell: Cell) -> Config:
    """Returns the Config of a cell's run, the first of its grid; a fork is trained from its beginning."""
    observe = {"observe": [cell.read]} if cell.read else {}
    return cell.runs[0].config(seeds=list(one.seeds), **observe)


def flag_text(one: Item | Analysis | Sketch, row: str, column: str, variant: str = "") -> str:
    """Returns the flags of `fedwin train` for a cell at paper scale, one per line; arguments as for `cell_of`."""
    return "\n".join(flags_of(config_of(_table(one), cell_of(one, row, column, variant))))


def preset_text(name: str) -> str:
    """Returns the content of a preset's file: what it trains, its command, what is expected, its flags."""
    preset = PRESETS[name]
    one = _table(item(preset.item))
    cell = cell_of(one, preset.row, preset.column, preset.variant)
    paper, table = one.table or ("", "")
    shown = [cell.column.title, cell.row.title, *([cell.variant.title] if len(one.variants) > 1 else [])]
    remarks = (
        f"{paper.upper()}, Table {table}: {'; '.join(shown)}.",
        f"python -m experiments.train --flagfile=experiments/flags/{name}.flags --data_dir=DIR",
        f"Another cell: fedwin reproduce {preset.item} --row=... --column={cell.column.name} --print_flags",
        *([preset.remark] if preset.remark else []),
        f"Expected time: {one.cost}.",
        *_expected(one, cell),
    )
    lines = [f"# {line}" for remark in remarks for line in _wrapped(remark)]
    return "\n".join([*lines, *flags_of(config_of(one, cell))]) + "\n"


def _wrapped(remark: str) -> list[str]:
    """Returns lines that are not too long; commands are not broken."""
    if remark.startswith("python "):
        return [remark]
    return textwrap.wrap(remark, WIDTH, break_long_words=False, break_on_hyphens=False)


def _expected(one: Item, cell: Cell) -> list[str]:
    """Returns what the paper prints in this column; rows whose variant sets another wrapper are told apart."""
    adaptive = {name for o in one.overrides if o.variation.fork is not None for name in o.rows}
    usual = [row for row in one.rows if row.name not in adaptive]
    told = [f"Expected: paper: {'; '.join(_printed(one, cell, usual))}."]
    others = [row for row in one.rows if row.name in adaptive]
    if others:
        algorithms = " or ".join(f"--algorithm={row.paper['algorithm']}" for row in others)
        shown = ", ".join(_printed(one, cell, others))
        told.append(f"{shown}, with {algorithms} and placement=pre in the --wrap line.")
    return told


def _printed(one: Item, cell: Cell, rows: list[Variation]) -> list[str]:
    """Returns 'FedAvg 64.37 -> 69.95' for every row that has numbers in a cell's column."""
    metrics = dict(cell.variant.printed).get("metric", "")
    found = []
    for row in rows:
        numbers = [
            str(there.printed).partition(" ")[0]
            for there in one.cells("paper")
            if there.row.name == row.name
            and there.column.name == cell.column.name
            and dict(there.variant.printed).get("metric", "") == metrics
        ]
        if numbers:
            found.append(f"{row.title} {' -> '.join(numbers)}")
    return found


def write(folder: pathlib.Path = FOLDER) -> None:
    """Writes the papers' presets."""
    for name in PRESETS:
        (folder / f"{name}.flags").write_text(preset_text(name), encoding="utf-8")


if __name__ == "__main__":
    write()
