"""Tables in files: CSV for programs, Markdown for people."""

import csv
import io
import pathlib
from collections.abc import Sequence
from typing import Any

from fedwin.analysis import Interval
from fedwin.errors import UserError
from fedwin.files import replace_text, writing

NOTHING = "-"


def make_folder(folder: pathlib.Path) -> None:
    """Makes the folder that tables and pictures go to, where it is not there yet."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)


def check_folder(folder: pathlib.Path) -> None:
    """Checks that several runs, and tables beside them, may go below a folder; makes nothing.

    Raises:
      UserError: it is a run's own directory.
    """
    if (folder / "config.json").exists():
        raise UserError(f"out_dir={folder} is the directory of one run; choose another --out_dir for several.")


def write_csv(path: pathlib.Path, head: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Writes a table for programs: numbers with all their digits, nothing where there is no number."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(["" if cell is None else cell for cell in row] for row in rows)
    replace_text(path, text.getvalue())


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a table in Markdown; bars inside of cells are escaped."""
    line = lambda cells: "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"
    return "\n".join([line(head), line(["---"] * len(head)), *map(line, rows)])


def write_markdown(path: pathlib.Path, title: str, blocks: Sequence[str]) -> None:
    """Writes a heading and blocks of text, tables among them, for people."""
    replace_text(path, "\n\n".join([f"# {title}", *blocks]) + "\n")


def number(value: float | None, digits: int) -> str:
    """Returns a number with so many decimals; '-' for none."""
    return NOTHING if value is None else f"{value:.{digits}f}"


def with_half_width(found: Interval, factor: float = 100, digits: int = 2) -> str:
    """Returns 'mean +- half width', in percent by default; 'diverged' where no seed counts."""
    if found.mean is None:
        return "diverged"
    text = f"{found.mean * factor:.{digits}f}"
    return text if found.half_width is None else f"{text} +- {found.half_width * factor:.{digits}f}"


def bounds(found: Interval, factor: float = 100, digits: int = 2) -> str:
    """Returns '[low, high]', in percent by default; '-' where there is no interval."""
    if found.bounds is None:
        return NOTHING
    low, high = found.bounds
    return f"[{low * factor:+.{digits}f}, {high * factor:+.{digits}f}]"


def counted(found: Interval) -> str:
    """Returns how many seeds count: '3', or '2 of 3'."""
    return str(found.seeds) if found.seeds == found.of_seeds else f"{found.seeds} of {found.of_seeds}"
