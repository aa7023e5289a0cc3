"""Printed numbers of the papers' result tables, as text, from CSV files in the folder `printed`.

Numbers are stored as printed, misprints included; `not_reached` stands for the dash of a table of rounds. An asterisk
at the end of a partition, a model or a variant marks a label that the paper does not state in full.
"""

import functools
import pathlib
from typing import NamedTuple

from .remarks import lines_of

FOLDER = pathlib.Path(__file__).parent / "printed"

# The columns that identify a number.
KEY = ("paper", "table", "dataset", "partition", "model", "algorithm", "variant", "metric")


class Printed(NamedTuple):
    """One printed number as text, or 'N/A', 'NaN', 'not_reached', and its standard deviation; '': none is printed."""

    value: str
    std: str

    @property
    def number(self) -> float | None:
        """The value; None if none is printed."""
        return None if self.value in ("N/A", "NaN", "not_reached", "") else float(self.value)

    @property
    def deviation(self) -> float | None:
        """The standard deviation; None if none is printed."""
        return float(self.std) if self.std else None

    def __str__(self) -> str:
        return f"{self.value} +- {self.std}" if self.std else self.value


@functools.cache
def printed() -> dict[tuple[str, ...], Printed]:
    """Returns values of KEY -> printed number, of all tables."""
    rows = [row for path in sorted(FOLDER.glob("*.csv")) for row in lines_of(path)]
    return {tuple(row[name] for name in KEY): Printed(row["value"], row["std"]) for row in rows}
