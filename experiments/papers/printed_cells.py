"""What the papers print: every number of their result tables, as text, in CSV files beside this one.

Numbers are kept as they are printed, misprints included; `not_reached` stands for the dash of a table of rounds. An
asterisk that ends a partition, a model or a variant marks a label that the paper does not spell out.
"""

import csv
import functools
import pathlib
from typing import NamedTuple

from fedwin.errors import UserError

FOLDER = pathlib.Path(__file__).parent / "printed"

# The columns that tell cells apart.
KEY = ("paper", "table", "dataset", "partition", "model", "algorithm", "variant", "metric")


class Printed(NamedTuple):
    """One printed number.

    Attributes:
      value: as text: '64.37', 'N/A', 'NaN' or 'not_reached'.
      std: its standard deviation as text; empty where none is printed.
    """

    value: str
    std: str

    @property
    def number(self) -> float | None:
        """The value, or None where none is printed."""
        return None if self.value in ("N/A", "NaN", "not_reached", "") else float(self.value)

    @property
    def deviation(self) -> float | None:
        """The standard deviation, or None where none is printed."""
        return float(self.std) if self.std else None

    def __str__(self) -> str:
        return f"{self.value} +- {self.std}" if self.std else self.value


@functools.cache
def printed() -> dict[tuple[str, ...], Printed]:
    """Returns the cells of all tables: the values of KEY -> what is printed there."""
    cells: dict[tuple[str, ...], Printed] = {}
    for path in sorted(FOLDER.glob("*.csv")):
        with path.open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                key = tuple(row[name] for name in KEY)
                if key in cells:
                    raise UserError(f"{path.name}: the cell {key} is there twice; keep one.")
                cells[key] = Printed(row["value"], row["std"])
    return cells


def of_table(paper: str, table: str) -> dict[tuple[str, ...], Printed]:
    """Returns the cells of one table: the values of KEY -> what is printed there."""
    return {key: cell for key, cell in printed().items() if key[:2] == (paper, table)}
