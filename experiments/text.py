"""Tables on a terminal."""

from collections.abc import Sequence

WIDTH = 120


def columns(rows: Sequence[Sequence[str]], width: int = WIDTH, rule: bool = True) -> str:
    """Lays out rows of cells, the first being the head; the widest columns are cut where a line would be too long.

    Args:
      rows: the cells.
      width: the longest line.
      rule: whether a line of dashes follows the head.
    """
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    while sum(widths) + 2 * (len(widths) - 1) > width and max(widths) > 8:
        widths[widths.index(max(widths))] -= 1
    lines = ["  ".join(_cut(cell, w).ljust(w) for cell, w in zip(row, widths)).rstrip() for row in rows]
    return "\n".join([lines[0], *(["-" * len(lines[0])] if rule else []), *lines[1:]])


def _cut(cell: str, width: int) -> str:
    return cell if len(cell) <= width else cell[: width - 3] + "..."
