"""The files of a comparison: CSV, Markdown and a picture."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from fedwin.analysis import Interval
from fedwin.runs.config import Config

from . import comparison_picture, scores, table_files
from .comparison_rows import Row, rows_of
from .text import columns

CSV_HEAD = (
    "method", "readout", "accuracy_percent", "half_width_95", "difference_points", "difference_low_95",
    "difference_high_95", "compared_with", "pairs", "of_pairs", "seeds", "of_seeds", "megabytes_sent", "loss",
    "rounds_per_second", "command", "fingerprint",
)  # fmt: skip
HEAD = (
    "method", "read-out", "accuracy (%)", "difference (points)", "95 % interval", "seeds", "MB sent", "loss",
    "rounds/s", "command", "fingerprint",
)  # fmt: skip
# Columns that fit the terminal.
SHOWN = 6
ONE_SEED = "One seed has no interval; two or more (--seeds=0,1,2) do."


def _percent(value: float | None) -> float | None:
    return None if value is None else 100 * value


def _csv_row(row: Row) -> tuple:
    difference = row.difference or Interval(None, None, 0, 0)
    low, high = difference.bounds or (None, None)
    return (
        row.method,
        row.readout,
        _percent(row.accuracy.mean),
        _percent(row.accuracy.half_width),
        _percent(difference.mean),
        _percent(low),
        _percent(high),
        None if row.difference is None else row.reference,
        None if row.difference is None else difference.seeds,
        None if row.difference is None else difference.of_seeds,
        row.accuracy.seeds,
        row.accuracy.of_seeds,
        row.megabytes,
        row.loss,
        row.pace,
        row.command,
        row.fingerprint,
    )


def _difference(row: Row) -> tuple[str, str]:
    """Returns the cells 'difference' and '95 % interval'."""
    if row.difference is None:
        return "reference", table_files.NOTHING
    if row.difference.mean is None:
        return "no pair", table_files.NOTHING
    pairs = "" if row.difference.seeds == row.difference.of_seeds else f" ({table_files.counted(row.difference)} pairs)"
    return f"{100 * row.difference.mean:+.2f}{pairs}", table_files.bounds(row.difference)


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.method,
        row.readout,
        table_files.with_half_width(row.accuracy),
        *_difference(row),
        f"{row.accuracy.seeds} of {row.accuracy.of_seeds}",
        table_files.number(row.megabytes, 1),
        table_files.number(row.loss, 4),
        table_files.number(row.pace, 1),
        f"`{row.command}`",
        f"`{row.fingerprint}`",
    )


def notes(rows: Sequence[Row], summary: dict[str, Any]) -> list[str]:
    """Returns what one must know to read the rows.

    Args:
      rows: of the table.
      summary: that of its first method.
    """
    first = list(dict.fromkeys(row.reference for row in rows))
    several = any(row.accuracy.of_seeds > 1 for row in rows)
    said = [
        f"Accuracy is the mean over {scores.last_rounds(summary)} and over seeds"
        + (", +- half of the 95 % interval (Student's t)." if several else ".")
        + f" Differences are taken seed by seed, in percentage points, to the plain model of `{first[0]}`"
        + (
            f" (methods on other data: to the first on the same, {', '.join(f'`{name}`' for name in first[1:])})."
            if first[1:]
            else "."
        )
        + " MB are sent in all rounds of a seed, to clients and back."
    ]
    if not several:
        said.append(ONE_SEED)
    if any(row.accuracy.seeds < row.accuracy.of_seeds for row in rows):
        said.append("Seeds that diverged count in no mean, difference or interval.")
    return said


def text(rows: Sequence[Row]) -> str:
    """Returns the intervals and differences for the terminal."""
    told = (
        "means with half of their 95 % interval (Student's t); paired differences to the plain model of the reference"
    )
    return f"{told}\n{columns([HEAD[:SHOWN], *(_cells(row)[:SHOWN] for row in rows)])}"


def write(folder: pathlib.Path, summaries: Mapping[str, dict[str, Any]], configs: Mapping[str, Config]) -> list[Row]:
    """Writes comparison.csv, comparison.md and comparison.png; returns the rows.

    Args:
      folder: where they go; it is there.
      summaries: method -> what `fedwin.run` returned.
      configs: method -> what was run.
    """
    rows = rows_of(summaries, configs)
    said = notes(rows, next(iter(summaries.values())))
    table_files.write_csv(folder / "comparison.csv", CSV_HEAD, [_csv_row(row) for row in rows])
    table = table_files.markdown(HEAD, [_cells(row) for row in rows])
    table_files.write_markdown(folder / "comparison.md", "Comparison of methods", [table, *said])
    comparison_picture.draw(rows, folder / "comparison.png")
    return rows
