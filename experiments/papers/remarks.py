"""Assumptions and explanations of numbers that differ, from the Markdown files beside this module; tables."""

import csv
import functools
import pathlib
from collections.abc import Iterator

FOLDER = pathlib.Path(__file__).parent


def rows_of(path: pathlib.Path) -> list[list[str]]:
    """Returns the cells of the only table of a Markdown file, without its head."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def lines_of(path: pathlib.Path) -> list[dict[str, str]]:
    """Returns the lines of a CSV file, column -> text."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def best_of(lines: list[dict[str, str]], *place: str, by: str = "accuracy") -> dict[tuple[str, ...], dict[str, str]]:
    """Returns place -> the best of the settings that were tried there: of the largest accuracy, or least loss.

    Args:
      lines: of a CSV file, a setting each. With a column `seeds`, only settings with the most seeds of a place count.
      place: the columns that say what a setting was tried for.
      by: the column with the metric.
    """
    better = lambda line: (int(line.get("seeds", 1)), float(line[by]) * (1 if by == "accuracy" else -1))
    return {tuple(line[column] for column in place): line for line in sorted(lines, key=better)}


@functools.cache
def subjects() -> dict[str, dict[str, str]]:
    """Returns item -> its title in one line, its cost at paper scale in words, and its standin (see Reproduced)."""
    return {line["item"]: line for line in lines_of(FOLDER / "items.csv")}


def _sections(name: str) -> Iterator[tuple[str, str]]:
    """Yields (heading, text) of the sections of a Markdown file."""
    for section in (FOLDER / name).read_text(encoding="utf-8").split("\n## ")[1:]:
        heading, _, text = section.partition("\n")
        yield heading, text


@functools.cache
def explanations() -> dict[tuple[str, str], str]:
    """Returns (item, scale) -> explanation of numbers that differ from the paper's, or of claims that do not hold."""
    found: dict[tuple[str, str], str] = {}
    for heading, text in _sections("explanations.md"):
        scale, _, names = heading.partition(": ")
        for key in ((name, scale) for name in names.split(", ")):
            found[key] = f"{found.get(key, '')}\n\n{text.strip()}".strip()
    return found


@functools.cache
def assumptions() -> dict[str, list[str]]:
    """Returns item -> settings that the paper does not state, and those used instead."""
    found: dict[str, list[str]] = {}
    for heading, text in _sections("assumptions.md"):
        lines = [" ".join(line.split()) for line in text.split("\n- ")[1:]]
        for name in heading.split(", "):
            found.setdefault(name, []).extend(lines)
    return found
