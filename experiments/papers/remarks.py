"""Errata of the papers and explanations of numbers that differ, from the Markdown files beside this module."""

import functools
import pathlib
from typing import NamedTuple

FOLDER = pathlib.Path(__file__).parent


class Erratum(NamedTuple):
    """A misprint or contradiction in a paper or its public code.

    Attributes:
      where: paper, table or section.
      printed: the misprint.
      shown: why it is wrong.
      here: the consequence in fedwin.
    """

    where: str
    printed: str
    shown: str
    here: str


def rows_of(path: pathlib.Path) -> list[list[str]]:
    """Returns the cells of the only table of a Markdown file, without its head."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


@functools.cache
def errata() -> tuple[Erratum, ...]:
    """Returns all errata, paper by paper."""
    return tuple(Erratum(*cells) for cells in rows_of(FOLDER / "errata.md"))


@functools.cache
def explanations() -> dict[tuple[str, str], str]:
    """Returns (item, scale) -> explanation of numbers that differ from the paper's, or of claims that do not hold."""
    found: dict[tuple[str, str], str] = {}
    for section in (FOLDER / "explanations.md").read_text(encoding="utf-8").split("\n## ")[1:]:
        heading, _, text = section.partition("\n")
        scale, _, names = heading.partition(": ")
        for key in ((name, scale) for name in names.split(", ")):
            found[key] = " ".join([*found.get(key, "").split(), *text.split()])
    return found
