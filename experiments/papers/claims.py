"""Claims of the papers."""

import dataclasses

# What a claim that something is at least as good allows for, in percentage points.
AT_LEAST = -0.5


@dataclasses.dataclass(frozen=True)
class Claim:
    """What a paper says about its numbers, in a form that can be checked.

    Attributes:
      text: the sentence.
      better: fixed names by axis ('row', 'column', 'variant'); the other axes are free.
      worse: the cells that they are compared with, likewise.
      by: how many percentage points better it must be.
    """

    text: str
    better: tuple[tuple[str, str], ...]
    worse: tuple[tuple[str, str], ...]
    by: float = 0.0
