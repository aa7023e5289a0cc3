"""What fits into the time: groups of pieces in their order, the rest for the next call."""

import time
from collections.abc import Callable
from typing import NamedTuple

from .pieces import Piece
from .records import Record, Records

# Seconds that a piece takes, as long as none has been measured: start, compilation, turns.
FIRST_GUESS = 20.0


class Clock:
    """The time that is left.

    Args:
      seconds: for everything.
      now: returns the time in seconds.
    """

    def __init__(self, seconds: float, now: Callable[[], float] = time.monotonic):
        self.now, self.end = now, now() + seconds

    def left(self) -> float:
        """Returns the seconds that are left; below 0: there are none."""
        return self.end - self.now()


class Done(NamedTuple):
    """What became of the pieces in this call.

    Attributes:
      measured: pieces that have figures now.
      left: those for which there was no time.
    """

    measured: list[Piece]
    left: list[Piece]


def go_through(
    groups: list[list[Piece]],
    records: Records,
    measure: Callable[[list[Piece]], dict[Piece, Record]],
    clock: Clock,
    reserved: float = 0.0,
) -> Done:
    """Measures what is missing as far as the time goes, and writes every piece as soon as its group is measured.

    Args:
      groups: pieces that are measured in turn with each other, the most important first.
      records: where they are written; what is there is not measured again.
      measure: pieces -> their figures or {'failed': reason}; what it leaves out had no time.
      clock: the time that is left.
      reserved: seconds that are kept for what comes after.
    """
    done = Done([], [])
    each = FIRST_GUESS
    spent, tried = 0.0, 0
    for group in groups:
        missing = [piece for piece in group if records.wanted(piece)]
        fit = min(len(missing), max(0, int((clock.left() - reserved) / each)))
        done.left.extend(missing[fit:])
        if not fit:
            continue
        begun = clock.now()
        found = measure(missing[:fit])
        for piece, figures in found.items():
            records.write(piece, figures)
        done.measured.extend(piece for piece, figures in found.items() if "failed" not in figures)
        done.left.extend(piece for piece in missing[:fit] if piece not in found)
        spent, tried = spent + clock.now() - begun, tried + fit
        each = max(spent / tried, 1e-3)
    return done
