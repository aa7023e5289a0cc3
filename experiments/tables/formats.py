"""Table cells and layouts: Markdown and CSV."""

import contextlib
import csv
import io
import pathlib
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from fedwin import multi_process
from fedwin.analysis import Interval
from fedwin.callbacks.scores import NOTHING
from fedwin.errors import UserError, escape
from fedwin.files import replace_text

# Fewest seeds whose interval is shown: Student's t for two seeds has one degree of freedom and a factor of 12.7.
MIN_SEEDS = 3
# What `+-` stands for, in notes and in the heads of columns.
HALF_WIDTH, CI = "half of the 95 % confidence interval (CI, Student's t)", "95 % CI"


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a table in Markdown; vertical bars in cells are escaped."""
    line = lambda cells: "| " + " | ".join(escape(cell).replace("|", "\\|") for cell in cells) + " |"
    return "\n".join([line(head), line(["---"] * len(head)), *map(line, rows)])


def write_markdown(path: pathlib.Path, title: str, blocks: Sequence[str]) -> None:
    """Writes a Markdown file: a heading, then blocks of text and tables."""
    replace_text(path, "\n\n".join([f"# {title}", *blocks]) + "\n")


def write_csv(path: pathlib.Path, rows: Sequence[dict[str, Any]]) -> None:
    """Writes a CSV file of rows with the same columns, with full precision; None is an empty cell."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([rows[0], *(row.values() for row in rows)])
    replace_text(path, text.getvalue())


def write_runs(path: pathlib.Path, rows: Sequence[dict[str, Any]]) -> None:
    """Writes rows of runs to a CSV file; says how many runs the table that it replaces has besides."""
    with contextlib.suppress(OSError, csv.Error), path.open(errors="replace", newline="") as file:
        if lost := {row.get("fingerprint") for row in csv.DictReader(file)} - {row["fingerprint"] for row in rows}:
            print(f"note: {path} had {len(lost)} other run(s); their own command writes it again", file=sys.stderr)
    write_csv(path, rows)


def shown(interval: Interval) -> Interval:
    """Returns an interval as tables and pictures show it: without bounds if it has fewer than MIN_SEEDS seeds."""
    return interval if interval.seeds >= MIN_SEEDS else interval._replace(half_width=None)


def has_intervals(intervals: Iterable[Interval]) -> bool:
    """Whether some intervals are shown with their bounds."""
    return any(interval.seeds >= MIN_SEEDS for interval in intervals)


def mean_and_half_width(interval: Interval, factor: float = 100, digits: int = 2) -> str:
    """Returns 'mean +- half width', in percent by default; 'mean (n = 2)' for two seeds; 'diverged' without any."""
    if interval.mean is None:
        return "diverged"
    text = f"{interval.mean * factor:.{digits}f}"
    if (half_width := shown(interval).half_width) is not None:
        return f"{text} +- {half_width * factor:.{digits}f}"
    return f"{text} (n = {seed_count(interval.seeds, interval.of_seeds)})" if interval.seeds > 1 else text


def interval_bounds(interval: Interval, factor: float = 100, digits: int = 2) -> str:
    """Returns '[low, high]', in percent by default; 'n = 2' for two seeds; '-' for fewer."""
    if (bounds := shown(interval).bounds) is None:
        return f"n = {interval.seeds}" if interval.seeds > 1 else NOTHING
    low, high = bounds
    return f"[{low * factor:+.{digits}f}, {high * factor:+.{digits}f}]"


def seed_count(seeds: int, of_seeds: int) -> str:
    """Returns how many seeds a mean or an interval is made of: '3', or '2 of 3'."""
    return str(seeds) if seeds == of_seeds else f"{seeds} of {of_seeds}"


def check_folder(folder: pathlib.Path) -> None:
    """Raises UserError in all processes if a folder of the first can't hold runs and their tables; creates nothing."""
    multi_process.run_on_all(lambda: _check_folder(folder) if multi_process.is_first() else None)


def _check_folder(folder: pathlib.Path) -> None:
    for path in (folder, *folder.parents):
        if path.exists() and not path.is_dir():
            raise UserError(f"out_dir={folder} can't be made (Not a directory); choose another --out_dir.")
    if (folder / "config.json").exists():
        raise UserError(f"out_dir={folder} is the directory of one run; choose another --out_dir for several.")
