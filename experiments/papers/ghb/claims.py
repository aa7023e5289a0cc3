"""Claims that several of the heavy-ball paper's tables make."""

from ..claims import Claim
from ..items import Entry


def most_accurate(rows: tuple[Entry, ...], columns: tuple[Entry, ...], best: str = "fedhbm") -> tuple[Claim, ...]:
    """Returns the claims that a method is more accurate than every other.

    Args:
      rows: of the table.
      columns: in which.
      best: name of the method's row.
    """
    title = next(row.title for row in rows if row.name == best)
    return tuple(
        Claim(
            f"{title} is more accurate than {row.title}: {column.title}.",
            (("row", best), ("column", column.name)),
            (("row", row.name), ("column", column.name)),
        )
        for column in columns
        for row in rows
        if row.name != best
    )
