"""What becomes of a paper's claims in numbers of ours."""

import dataclasses
from collections.abc import Iterator

import numpy as np

from ..papers.items import Claim, Item
from ..papers.measures import MeanLast, RoundsTo
from .values import Value

# By how much two numbers must differ before they say anything: percentage points, or per cent of the rounds.
CLOSE_POINTS, CLOSE_ROUNDS = 0.5, 5.0


@dataclasses.dataclass(frozen=True)
class Pair:
    """Two numbers that a claim compares.

    Attributes:
      place: row, column and variant of what should be better.
      gain: by how much it is: percentage points of accuracy, or per cent fewer rounds to a target.
      seeds: that both have.
    """

    place: tuple[str, str, str]
    gain: float
    seeds: int


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Whether a claim shows.

    Attributes:
      claim: what is claimed.
      pairs: of numbers.
      in_rounds: whether rounds to a target are compared, not accuracies.
    """

    claim: Claim
    pairs: list[Pair]
    in_rounds: bool = False

    @property
    def counts(self) -> tuple[int, int, int]:
        """In how many of the pairs it shows, is too close to tell, and does not show."""
        close = CLOSE_ROUNDS if self.in_rounds else CLOSE_POINTS
        beyond = [pair.gain - self.claim.by for pair in self.pairs]
        shows, fails = sum(b > close for b in beyond), sum(b < -close for b in beyond)
        return shows, len(beyond) - shows - fails, fails

    @property
    def word(self) -> str:
        """The verdict without its numbers."""
        shows, close, fails = self.counts
        if not self.pairs:
            return "not tested"
        if close == len(self.pairs):
            return "too close to tell"
        return "holds" if not fails else "shows in part" if shows else "does not show"

    def __str__(self) -> str:
        if not self.pairs:
            return self.word
        shows, close, _ = self.counts
        within = f"{CLOSE_ROUNDS:g} % of the rounds" if self.in_rounds else "half a point"
        told = f"{shows} of {len(self.pairs)}" + (f", {close} within {within}" if close else "")
        mean = float(np.mean([pair.gain for pair in self.pairs]))
        unit = f"{0 - mean:+.0f} % rounds" if self.in_rounds else f"{mean:+.2f} points"
        seeds = min(pair.seeds for pair in self.pairs)
        return f"{self.word}: {told}, {unit} on average, {seeds} seed{'s' if seeds > 1 else ''}"


def verdicts(item: Item, found: list[Value]) -> list[Verdict]:
    """Returns what became of an item's claims."""
    return [verdict(claim, found) for claim in item.claims]


def verdict(claim: Claim, found: list[Value]) -> Verdict:
    """Returns whether a claim shows in the numbers of a table."""
    by_place = {value.cell.position: value for value in found}
    pairs, in_rounds = [], False
    for one, other in _compared(claim, by_place):
        kind = type(one.cell.measure)
        if kind is type(other.cell.measure) and kind in GAINS:
            pair = GAINS[kind](one, other)
            pairs += [pair] if pair is not None else []
            in_rounds = in_rounds or kind is RoundsTo
    return Verdict(claim, pairs, in_rounds)


def _compared(claim: Claim, by_place: dict[tuple[str, str, str], Value]) -> Iterator[tuple[Value, Value]]:
    """Yields (what should be better, what it is compared with)."""
    axes = ("row", "column", "variant")
    better, worse = dict(claim.better), dict(claim.worse)
    for place, one in by_place.items():
        named = dict(zip(axes, place, strict=True))
        if all(named[axis] == name for axis, name in better.items()):
            row, column, variant = (worse.get(axis, named[axis]) for axis in axes)
            other = by_place.get((row, column, variant))
            if other is not None and other is not one:
                yield one, other


def _points(one: Value, other: Value) -> Pair | None:
    """Returns the gain in accuracy, over the seeds that both have, or of the means where they share none."""
    factor = one.cell.measure.factor if isinstance(one.cell.measure, MeanLast) else 1
    mine, others = ({s: n for s, n in value.each.items() if n is not None} for value in (one, other))
    if not mine or not others:
        return None
    common = sorted(mine.keys() & others.keys())
    first, second = ([each[s] for s in common] or list(each.values()) for each in (mine, others))
    gain = 100 / factor * float(np.mean(first) - np.mean(second))
    return Pair(one.cell.position, gain, len(common) or min(len(mine), len(others)))


def _sooner(one: Value, other: Value) -> Pair | None:
    """Returns the gain in rounds, over the seeds that have ended for both; one that never arrives needs all rounds."""
    ended = all(0 < value.rounds[0] == value.rounds[1] for value in (one, other))
    common = [s for s in sorted(one.each.keys() & other.each.keys()) if (one.each[s], other.each[s]) != (None, None)]
    if not ended or not common:
        return None
    first, second = ([float(v.each[s] or v.rounds[1]) for s in common] for v in (one, other))
    return Pair(one.cell.position, 100 * (1 - float(np.mean(first) / np.mean(second))), len(common))


# What can be compared, and how.
GAINS = {MeanLast: _points, RoundsTo: _sooner}
