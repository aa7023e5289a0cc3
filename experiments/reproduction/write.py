"""Writes the numbers of a table next to the printed ones: CSV for programs, Markdown for people, paired intervals."""

import itertools
import pathlib
from collections.abc import Iterable
from typing import Any

from fedwin.analysis import Interval, mean_interval, paired_interval

from ..papers.items import Cell, Item, file_stem
from ..papers.measures import NATS, SHARE
from ..papers.remarks import explanations
from ..papers.trajectories import Run
from ..tables.formats import (
    HALF_WIDTH,
    MIN_SEEDS,
    interval_bounds,
    markdown_table,
    mean_and_half_width,
    number,
    write_csv,
)
from . import tune
from .commands import commands
from .store import MODEL, ResultStore
from .values import AGREES, NEAR, Value
from .verdicts import verdicts

# Decimals of numbers with these units; others have two.
DIGITS = {SHARE: 3, "rounds": 0, NATS: 3}
# Decimals in tables with paired differences; others have two.
PAIRED_DIGITS = {NATS: 3}
# Agreement with the printed number -> Markdown around ours.
MARKS = {AGREES: "**", NEAR: "*"}
MEGABYTE = 1e6
# What a record of an earlier version does not say.
UNRECORDED = "not recorded"
HEAD = (
    "row",
    "column",
    "variant",
    "read-out",
    "unit",
    "printed",
    "printed std",
    "ours (mean over seeds)",
    "std over seeds",
    "difference",
    "z",
    "seeds (n)",
    "of one seed",
    "rounds done",
    "rounds",
    "run",
    "fingerprint",
    "strategy",
    "data",
    "command",
    "grid, held-out accuracy",
)
PAIRED_HEAD = (
    "mean",
    "half width of its 95 % interval",
    "difference to the first",
    "half width of the difference's 95 % interval",
    "seeds that count",
    "MB sent",
)


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
                value.description if value.by_seed else None,
                *value.rounds,
                run.key,
                *_provenance(store, run, value.scale),
                tune.described(store, cell),
            ]
        )
    return rows


def _provenance(store: ResultStore, run: Run, scale: str) -> tuple[str, str, str, str]:
    """Returns fingerprints, strategies, checksums of the data, and commands of all records of a run."""
    headers = [record.header for record in store.records(run)]
    distinct = lambda texts: " ".join(dict.fromkeys(texts))
    fingerprints = distinct(header.get("fingerprint", "") for header in headers)
    strategies = distinct(header.get("strategy", UNRECORDED) for header in headers)
    checksums = distinct(header.get("data", {}).get("checksum", UNRECORDED) for header in headers)
    return fingerprints, strategies, checksums, commands(store, run, scale)


def shown(value: Value) -> str:
    """Returns a number for readers.

    At paper scale 'printed / ours', ours in bold if it agrees, in italics if it is near, and of one seed with the
    standard deviation over the averaged evaluations in brackets.
    """
    digits = DIGITS.get(value.cell.measure.unit, 2)
    ended = value.rounds[0] == value.rounds[1]
    ours = "never" if value.by_seed and ended and value.mean is None else number(value.mean, digits)
    ours = "diverged" if value.mean is None and value.diverged else ours
    if value.std is not None:
        ours += f" +- {value.std:.{digits}f} (n = {len(value.numbers)})"
    if value.mean is not None and 0 < value.rounds[0] < value.rounds[1]:
        ours += f" (round {value.rounds[0]:,} of {value.rounds[1]:,})"
    if value.scale == "paper" and len(value.numbers) == 1 and value.jump is not None:
        ours += f" ({value.jump:.{digits}f})"
    mark = MARKS.get(value.agreement or "", "")
    ours = f"{mark}{ours}{mark}"
    beside = value.cell.printed is not None and value.scale == "paper"
    return f"{value.cell.printed} / {ours}" if beside else ours


def legend(item: Item, numbers: list[Value]) -> str:
    """Returns what the numbers of a table are means over, and what follows +-.

    Args:
      item: the table or figure.
      numbers: of its cells, as far as they have been trained.
    """
    counts = sorted({len(value.numbers) for value in numbers if value.mean is not None})
    if not counts:
        return "No number yet: no run has finished."
    parts = [f"Of one seed: {_descriptions(item, numbers)}."]
    jumps = any(value.scale == "paper" and value.jump is not None for value in numbers)
    one = "one seed, in brackets the standard deviation over these evaluations" if jumps else "one seed"
    if counts == [1]:
        return " ".join([*parts, f"Shown: {one}."])
    seeds = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    if item.draw == "curves":
        return " ".join([*parts, f"Lines: mean over n = {seeds} seeds; band: standard deviation over them."])
    parts.append(f"Shown: mean over n seeds, +- their standard deviation{f'; without +-: {one}' * (1 in counts)}.")
    if any(value.scale == "paper" and value.cell.printed and value.cell.printed.std for value in numbers):
        parts.append("The printed +- is the paper's.")
    return " ".join(parts)


def _descriptions(item: Item, numbers: list[Value]) -> str:
    """Returns what the numbers of one seed are, with the columns and variants of each kind if there are several."""
    by_description: dict[str, list[Value]] = {}
    for value in numbers:
        if value.mean is not None:
            by_description.setdefault(value.description, []).append(value)
    if len(by_description) == 1:
        return next(iter(by_description))
    return "; ".join(f"{text} ({_where(item, values)})" for text, values in by_description.items())


def _where(item: Item, values: list[Value]) -> str:
    """Returns the columns and variants of some numbers in words."""
    variants = {value.cell.column.title: dict[str, None]() for value in values}
    for value in values:
        variants[value.cell.column.title][value.cell.variant.title] = None
    columns: dict[tuple[str, ...], list[str]] = {}
    for column, titles in variants.items():
        columns.setdefault(tuple(titles), []).append(column)
    every = tuple(variant.title for variant in item.variants)
    texts = [
        " / ".join(titles) + ("" if {*shown_variants} == {*every} else f": {' / '.join(shown_variants)}")
        for shown_variants, titles in columns.items()
    ]
    return "; ".join(texts)


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
        blocks += paired_blocks(store, item, trained) if item.paired else [legend(item, trained), grid(item, trained)]
    elif trained:
        blocks.append(legend(item, trained))
    blocks += [f"![{item.title}]({path})" for path in pictures]
    claims = [f"- {v.claim.text} **{v}**" for v in verdicts(item, numbers)]
    blocks += ["\n".join(claims)] if claims else []
    if (item.name, scale) in explanations():
        blocks.append(explanations()[item.name, scale])
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
        flags.append(f"--client_lr={config.client_lr:g}")
        if config.lr_schedule:
            flags.append(f"--lr_schedule={config.lr_schedule}")
        line = " ".join(flags)
        rows.append([row.title, f"`{line}`", *(number(column[index], 1) for column in same_costs)])
    heads = [f"MB sent: {'; '.join(titles)}" for titles in same_costs.values()]
    return markdown_table(["", "runs with", *heads], rows)


def paired_blocks(store: ResultStore, item: Item, numbers: list[Value]) -> list[str]:
    """Returns the tables of a report, and how to read them."""
    counted = [value for value in numbers if value.mean is not None]
    text = (
        f"Of one seed: {_descriptions(item, counted)}. Shown: mean over n seeds, +- {HALF_WIDTH}; in parentheses the "
        f"difference to the model of {item.rows[0].title} in the same column, seed by seed, and its 95 % interval. (n) "
        "is the number of seeds; fewer than three have no interval."
    )
    ended = [value for value in numbers if value.mean is not None or value.diverged]
    return [text, paired_grid(item, ended), costs(store, item, ended)]


def paired_grid(item: Item, numbers: list[Value]) -> str:
    """Returns a table in Markdown: mean +- 95 % half width (n), and the interval of the paired difference."""
    by_position = intervals(item, numbers)
    digits = {value.cell.position: PAIRED_DIGITS.get(value.cell.measure.unit, 2) for value in numbers}
    heads = [(column, variant) for column in item.columns for variant in item.variants]
    rows = []
    for row in item.rows:
        cells = []
        for column, variant in heads:
            position = (row.name, column.name, variant.name)
            mean, difference = by_position.get(position, (None, None))
            decimals = digits.get(position, 2)
            text = "" if mean is None else mean_and_half_width(mean, 1, decimals)
            text += f" (n = {mean.seeds})" if mean is not None and mean.seeds and "(n =" not in text else ""
            if difference is not None and difference.mean is not None:
                text = f"{text} {_signed(difference, decimals)}"
            cells.append(text)
        if any(cells):
            rows.append([row.title, *cells])
    return markdown_table(["", *(f"{column.title}: {variant.title}" for column, variant in heads)], rows)


def _signed(difference: Interval, digits: int) -> str:
    """Returns '(+1.20, [+0.50, +1.90])', or '(+1.20)' with too few seeds."""
    mean = f"{difference.mean:+.{digits}f}"
    return f"({mean})" if difference.seeds < MIN_SEEDS else f"({mean}, {interval_bounds(difference, 1, digits)})"
