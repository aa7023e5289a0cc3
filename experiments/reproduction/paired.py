"""Methods against the first one, seed by seed: 95 % intervals, and what they send."""

from typing import Any

from fedwin.analysis import Interval, mean_interval, paired_interval

from ..papers.items import Item
from ..table_files import bounds, markdown, number, with_half_width
from .shelf import Shelf
from .values import Value

MEGABYTE = 1e6
HEAD = ("mean", "half width", "difference to the first", "half width of it", "seeds that count", "MB sent")


def _first(item: Item, value: Value, by_place: dict[tuple[str, str, str], Value]) -> Value | None:
    """Returns what a number is compared with: the first row's trained model in the same column."""
    return by_place.get((item.rows[0].name, value.cell.column.name, item.variants[0].name))


def megabytes(shelf: Shelf, value: Value) -> float | None:
    """Returns what all clients of a run received and sent, per seed."""
    run = value.run
    ends = [
        max(line["bytes_down"] + line["bytes_up"] for line in record.lines if line["seed"] == seed)
        for record in shelf.records(run)
        for seed in record.seeds()
    ]
    return max(ends) / MEGABYTE if ends else None


def intervals(item: Item, found: list[Value]) -> dict[tuple[str, str, str], tuple[Interval, Interval | None]]:
    """Returns place -> (mean, difference to the first row's model; None for that model itself)."""
    by_place = {value.cell.position: value for value in found}
    told = {}
    for place, value in by_place.items():
        first = _first(item, value, by_place)
        difference = None if first is None or first is value else paired_interval(value.each, first.each)
        told[place] = (mean_interval(value.each), difference)
    return told


def columns(shelf: Shelf, item: Item, found: list[Value]) -> list[list[Any]]:
    """Returns what belongs beside every number in the CSV, by HEAD."""
    known = intervals(item, found)
    rows = []
    for value in found:
        mean, difference = known[value.cell.position]
        other = (difference.mean, difference.half_width) if difference else (None, None)
        rows.append([mean.mean, mean.half_width, *other, f"{mean.seeds} of {mean.of_seeds}", megabytes(shelf, value)])
    return rows


def costs(shelf: Shelf, item: Item, found: list[Value]) -> str:
    """Returns in Markdown what every method runs with, and what its clients receive and send, in megabytes a seed."""
    ended = [v for v in found if v.mean is not None]  # not what diverged on the way
    sent = {(v.cell.row.name, v.cell.column.name): megabytes(shelf, v) for v in ended}
    by_row = {v.cell.row.name: v.run.config() for v in found}
    alike: dict[tuple, list[str]] = {}  # columns that cost the same stand together
    for column in item.columns:
        alike.setdefault(tuple(sent.get((name, column.name)) for name in by_row), []).append(column.title)
    rows = []
    for place, row in enumerate(row for row in item.rows if row.name in by_row):
        config = by_row[row.name]
        flags = [f"--algorithm={config.algorithm}", *(f"--wrap={one}" for one in config.wrap)]
        told = " ".join([*flags, f"--client_lr={config.client_lr:g}"])
        rows.append([row.title, f"`{told}`", *(number(megabytes_[place], 1) for megabytes_ in alike)])
    heads = [f"MB sent: {'; '.join(titles)}" for titles in alike.values()]
    return markdown(["", "runs with", *heads], rows)


def blocks(shelf: Shelf, item: Item, found: list[Value]) -> list[str]:
    """Returns the tables of a report, and how to read them."""
    legend = (
        "Mean and 95 % half width over seeds in per cent; in parentheses the difference to the model of "
        f"{item.rows[0].title} in the same column, seed by seed, and its 95 % interval. What has none has one seed."
    )
    ended = [value for value in found if value.mean is not None or value.diverged]
    return [legend, grid(item, ended), costs(shelf, item, ended)]


def grid(item: Item, found: list[Value]) -> str:
    """Returns the table in Markdown: mean +- 95 % half width, below it the interval of the paired difference."""
    known = intervals(item, found)
    heads = [(column, variant) for column in item.columns for variant in item.variants]
    rows = []
    for row in item.rows:
        cells = []
        for column, variant in heads:
            mean, difference = known.get((row.name, column.name, variant.name), (None, None))
            told = "" if mean is None else with_half_width(mean, 1)
            cells.append(told if difference is None or difference.mean is None else f"{told} {_told(difference)}")
        if any(cells):
            rows.append([row.title, *cells])
    return markdown(["", *(f"{column.title}: {variant.title}" for column, variant in heads)], rows)


def _told(difference: Interval) -> str:
    """Returns '(+1.20, [+0.50, +1.90])'."""
    ends = bounds(difference, 1)
    return f"({number(difference.mean, 2)})" if difference.bounds is None else f"({difference.mean:+.2f}, {ends})"
