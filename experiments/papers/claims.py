"""Statements of the papers about their numbers, in a form that can be checked, from claims.csv.

A line of the file stands for several claims: the combinations of the names in its axes. `a, b` are names, `*` all of
an axis, `*, -a` all but one; `a > b` compares, and `;` separates comparisons. In the text {row}, {column} ... are
titles of names, {better} and {worse} those of the first comparison.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping

from .remarks import FOLDER, lines_of

# (axis, name) of cells; axes that are not named are free.
Names = tuple[tuple[str, str], ...]
AXES = ("row", "column", "variant", "reading", "metric")
# How a claim about several comparisons is meant; empty: as one about their mean.
EVERY, WITHIN = "every", "within"
LINES = lines_of(FOLDER / "claims.csv")


@dataclasses.dataclass(frozen=True)
class Claim:
    """A statement about numbers.

    Attributes:
      better: the cells that should be better; axes are 'row', 'column' and 'variant'. For a figure of trained models,
        'reading' and 'metric' name a number, of which lower is better.
      worse: the cells that they are compared with; other axes as in `better`.
      by: required difference in percentage points.
      over: the cells that both sides' accuracies are gains over; empty: the accuracies are compared.
      how: for several comparisons, 'every' one must hold, or '' their mean; 'within' asks for a difference of at most
        |by|, of either sign.
    """

    text: str
    better: Names
    worse: Names
    by: float = 0.0
    section: str = ""
    over: Names = ()
    how: str = ""


def claims_of(item: str, titles: Mapping[str, Mapping[str, str]]) -> tuple[Claim, ...]:
    """Returns the claims about a table or figure; `titles` are axis -> name -> title."""
    return tuple(claim for line in LINES if item in line["items"].split() for claim in _claims(line, titles))


def _claims(line: Mapping[str, str], titles: Mapping[str, Mapping[str, str]]) -> Iterator[Claim]:
    """Yields the claims of a line; names of the first axis vary fastest."""
    axes = [axis for axis in AXES if line[axis]]
    pairs = [list(_pairs(line[axis], list(titles.get(axis, ())))) for axis in axes]
    over = tuple((axis, name) for axis, _, name in [line["over"].partition("=")] if axis)
    for chosen in itertools.product(*reversed(pairs)):
        places = dict(zip(axes, reversed(chosen)))
        words: dict[str, str] = {}
        for axis, (better, worse) in places.items():
            of_axis = titles.get(axis, {})
            own = {axis: better} if better == worse else {"better": better, "worse": worse}
            words = {word: of_axis.get(name, name) for word, name in own.items()} | words
        first, second = (tuple((axis, names[side]) for axis, names in places.items()) for side in (0, 1))
        text, by = line["claim"].format(**words), float(line["by"] or 0)
        yield Claim(text, first, second, by, line["section"], over, line["how"])


def _pairs(text: str, every: list[str]) -> Iterator[tuple[str, str]]:
    """Yields (better, worse) for the names of an axis; both are the same without a comparison."""
    for alternative in text.split("; "):
        left, _, right = alternative.partition(" > ")
        for name in _names(left, every, right):
            yield from ((name, other) for other in _names(right, every, name)) if right else ((name, name),)


def _names(text: str, every: list[str], other: str) -> list[str]:
    """Returns the names that a text stands for; `*` leaves out the name that it is compared with."""
    names = text.split(", ")
    if names[0] != "*":
        return names
    return [name for name in every if name != other and f"-{name}" not in names]
