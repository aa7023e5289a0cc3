"""Writes the numbers of a table beside the printed ones: CSV for programs, Markdown for people, paired intervals."""

import itertools
import pathlib
from collections.abc import Iterable
from typing import Any

from fedwin.analysis import Interval, mean_interval, paired_interval

from ..papers.explanations import EXPLANATIONS
from ..papers.items import Cell, Item, file_stem
from ..papers.measures import SHARE
from ..papers.trajectories import Run
from ..tables.formats import interval_bounds, markdown_table, mean_and_half_width, number, write_csv
from . import tune
from .store import MODEL, ResultStore
from .values import Value, verdicts

# Decimals of numbers with these units; others have two.
DIGITS = {SHARE: 3, "rounds": 0}
MEGABYTE = 1e6
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
PAIRED_HEAD = ("mean", "half width", "difference to the first", "half width of it", "seeds that count", "MB sent")


def csv_rows(store: ResultStore, numbers: Iterable[Value]) -> list[list[Any]]:
    """Returns a row per number, with the columns of HEAD."""
    rows = []
    for value in numbers:
        cell, run = value.cell, value.run
        printed = cell.printed
        rows.append(
            [
                *cell.position,
                cell.read or MODEL,
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
                *_provenance(store, run),
                tune.described(store, cell),
            ]
        )
    return rows


def _provenance(store: ResultStore, run: Run) -> tuple[str, str]:
    """Returns fingerprints and commands of all directories of a run."""
    records = store.records(run)
    fingerprints = dict.fromkeys(record.header.get("fingerprint", "") for record in records)
    commands = dict.fromkeys(record.header.get("command", "") for record in records)
    return " ".join(fingerprints), " ; ".join(filter(None, commands))


def shown(value: Value) -> str:
    """Returns a number for readers; at paper scale 'printed / ours', ours in bold if it is reproduced."""
    digits = DIGITS.get(value.cell.measure.unit, 2)
    ended = value.rounds[0] == value.rounds[1]
    ours = "never" if value.by_seed and ended and value.mean is None else number(value.mean, digits)
    ours = "diverged" if value.mean is None and value.diverged else ours
    if value.std is not None:
        ours += f" +- {value.std:.{digits}f}"
    if value.mean is not None and 0 < value.rounds[0] < value.rounds[1]:
        ours += f" (round {value.rounds[0]:,} of {value.rounds[1]:,})"
    if value.reproduced:
        ours = f"**{ours}**"
    beside = value.cell.printed is not None and value.scale == "paper"
    return f"{value.cell.printed} / {ours}" if beside else ours


def grid(item: Item, numbers: list[Value]) -> str:
    """Returns a table in Markdown: methods down, data and variants across."""
    titles = {(v.cell.column.name, v.cell.variant.name): _heading(item, v.cell) for v in numbers}
    pairs = itertools.product((c.name for c in item.columns), (v.name for v in item.variants))
    columns = [pair for pair in pairs if pair in titles]
    by_position = {v.cell.position: v for v in numbers}
    rows = []
    for row in dict.fromkeys(v.cell.row for v in numbers):
        cells = [by_position.get((row.name, column, variant)) for column, variant in columns]
        rows.append([row.title, *("" if value is None else shown(value) for value in cells)])
    return markdown_table(["", *(titles[column] for column in columns)], rows)


def _heading(item: Item, cell: Cell) -> str:
    return cell.column.title if len(item.variants) == 1 else f"{cell.column.title}: {cell.variant.title}"


def section(
    item: Item, scale: str, store: ResultStore, numbers: list[Value], pictures: Iterable[str | pathlib.Path] = ()
) -> str:
    """Returns an item's section of the report in Markdown.

    Args:
      item: the table or figure.
      scale: smoke, trend or paper.
      store: where records are read.
      numbers: of its cells.
      pictures: paths of its pictures, relative to the report.
    """
    trained = [value for value in numbers if value.by_seed]
    blocks = [f"### {item.name} ({scale}): {item.title}"]
    if scale != "paper" and item.standin:
        blocks.append(f"{'Setting' if item.paired else 'Stand-in'}: {item.standin}")
    if item.draw == "table" or item.draw == "sweep":
        blocks += paired_blocks(store, item, trained) if item.paired else [grid(item, trained)]
    blocks += [f"![{item.title}]({path})" for path in pictures]
    claims = [f"- {v.claim.text} **{v}**" for v in verdicts(item, numbers)]
    blocks += ["\n".join(claims)] if claims else []
    if (item.name, scale) in EXPLANATIONS:
        blocks.append(EXPLANATIONS[item.name, scale])
    notes = [f"- {line}" for line in item.assumed]
    blocks += ["Not stated in the paper, and taken here:\n\n" + "\n".join(notes)] if notes and scale == "paper" else []
    return "\n\n".join(blocks)


def write(
    item: Item,
    scale: str,
    store: ResultStore,
    numbers: list[Value],
    folder: pathlib.Path,
    pictures: Iterable[str | pathlib.Path] = (),
) -> None:
    """Writes NAME.csv and NAME.md of an item.

    Args:
      item: the table or figure.
      scale: smoke, trend or paper.
      store: where records are read.
      numbers: of its cells.
      folder: of the files.
      pictures: paths of its pictures, relative to the folder.
    """
    stem = file_stem(item)
    write_numbers(item, store, numbers, folder / f"{stem}.csv")
    (folder / f"{stem}.md").write_text(section(item, scale, store, numbers, pictures) + "\n", encoding="utf-8")


def write_numbers(item: Item, store: ResultStore, numbers: list[Value], path: pathlib.Path) -> None:
    """Writes an item's numbers to a CSV file, each with the printed one, its run, its fingerprint and its command."""
    head, rows = list(HEAD), csv_rows(store, numbers)
    if item.paired:
        head += PAIRED_HEAD
        rows = [[*row, *more] for row, more in zip(rows, paired_columns(store, item, numbers), strict=True)]
    write_csv(path, head, rows)


# Tables of our own: methods against the first one, seed by seed.
def megabytes(store: ResultStore, value: Value) -> float | None:
    """Returns what all clients of a run received and sent, in megabytes per seed."""
    run = value.run
    ends = [
        max(line["bytes_down"] + line["bytes_up"] for line in record.lines if line["seed"] == seed)
        for record in store.records(run)
        for seed in record.seeds()
    ]
    return max(ends) / MEGABYTE if ends else None


def intervals(item: Item, numbers: list[Value]) -> dict[tuple[str, str, str], tuple[Interval, Interval | None]]:
    """Returns position -> (mean, difference to the first row's model in the same column; None for that model)."""
    by_position = {value.cell.position: value for value in numbers}
    result = {}
    for position, value in by_position.items():
        first = by_position.get((item.rows[0].name, value.cell.column.name, item.variants[0].name))
        difference = None if first is None or first is value else paired_interval(value.by_seed, first.by_seed)
        result[position] = (mean_interval(value.by_seed), difference)
    return result


def paired_columns(store: ResultStore, item: Item, numbers: list[Value]) -> list[list[Any]]:
    """Returns further columns of the CSV, by PAIRED_HEAD."""
    by_position = intervals(item, numbers)
    rows = []
    for value in numbers:
        mean, difference = by_position[value.cell.position]
        other = (difference.mean, difference.half_width) if difference else (None, None)
        rows.append([mean.mean, mean.half_width, *other, f"{mean.seeds} of {mean.of_seeds}", megabytes(store, value)])
    return rows


def costs(store: ResultStore, item: Item, numbers: list[Value]) -> str:
    """Returns in Markdown the flags of every method, and what its clients receive and send, in megabytes per seed."""
    ended = [v for v in numbers if v.mean is not None]  # without those that diverged
    sent = {(v.cell.row.name, v.cell.column.name): megabytes(store, v) for v in ended}
    by_row = {v.cell.row.name: v.run.config() for v in numbers}
    same_costs: dict[tuple, list[str]] = {}  # megabytes of all rows -> columns
    for column in item.columns:
        same_costs.setdefault(tuple(sent.get((name, column.name)) for name in by_row), []).append(column.title)
    rows = []
    for index, row in enumerate(row for row in item.rows if row.name in by_row):
        config = by_row[row.name]
        flags = [f"--algorithm={config.algorithm}", *(f"--wrap={text}" for text in config.wrap)]
        line = " ".join([*flags, f"--client_lr={config.client_lr:g}"])
        rows.append([row.title, f"`{line}`", *(number(column[index], 1) for column in same_costs)])
    heads = [f"MB sent: {'; '.join(titles)}" for titles in same_costs.values()]
    return markdown_table(["", "runs with", *heads], rows)


def paired_blocks(store: ResultStore, item: Item, numbers: list[Value]) -> list[str]:
    """Returns the tables of a report, and how to read them."""
    legend = (
        "Mean and 95 % half width over seeds in per cent; in parentheses the difference to the model of "
        f"{item.rows[0].title} in the same column, seed by seed, and its 95 % interval. What has none has one seed."
    )
    ended = [value for value in numbers if value.mean is not None or value.diverged]
    return [legend, paired_grid(item, ended), costs(store, item, ended)]


def paired_grid(item: Item, numbers: list[Value]) -> str:
    """Returns a table in Markdown: mean +- 95 % half width, and the interval of the paired difference."""
    by_position = intervals(item, numbers)
    heads = [(column, variant) for column in item.columns for variant in item.variants]
    rows = []
    for row in item.rows:
        cells = []
        for column, variant in heads:
            mean, difference = by_position.get((row.name, column.name, variant.name), (None, None))
            text = "" if mean is None else mean_and_half_width(mean, 1)
            cells.append(text if difference is None or difference.mean is None else f"{text} {_signed(difference)}")
        if any(cells):
            rows.append([row.title, *cells])
    return markdown_table(["", *(f"{column.title}: {variant.title}" for column, variant in heads)], rows)


def _signed(difference: Interval) -> str:
    """Returns '(+1.20, [+0.50, +1.90])'."""
    ends = interval_bounds(difference, 1)
    return f"({number(difference.mean, 2)})" if difference.bounds is None else f"({difference.mean:+.2f}, {ends})"
