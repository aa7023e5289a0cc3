"""Claims that several of the heavy-ball paper's tables make."""

from ..items import Claim, Entry


def most_accurate(rows: tuple[Entry, ...], columns: tuple[str, ...], best: str = "fedhbm") -> tuple[Claim, ...]:
    """Returns the claims that a method is more accurate than every other.

    Args:
      rows: of the table.
      columns: in which.
      best: name of the method's row.
    """
    title = next(row.title for row in rows if row.name == best)
    return tuple(
        Claim(
            f"{title} is more accurate than {row.title}, {column}.",
            (("row", best), ("column", column)),
            (("row", row.name), ("column", column)),
        )
        for column in columns
        for row in rows
        if row.name != best
    )
