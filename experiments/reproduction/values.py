"""Numbers of a table, computed from stored curves and compared with the printed ones; verdicts on claims."""

import dataclasses
from collections.abc import Iterator

import numpy as np

from ..papers.items import Cell, Claim, Item
from ..papers.measures import MeanLast, RoundsTo
from ..papers.trajectories import Run
from .store import ResultStore, curves
from .tune import best_point

# A number is reproduced within so many percentage points, or standard deviations.
POINTS, DEVIATIONS = 1.0, 2.0
# Smaller differences are too close to tell: in percentage points, or percent of the rounds.
CLOSE_POINTS, CLOSE_ROUNDS = 0.5, 5.0


@dataclasses.dataclass(frozen=True)
class Value:
    """A computed number and the printed one.

    Attributes:
      cell: of the table.
      by_seed: seed -> number; None if it is undefined (the seed diverged, or never reached the target).
      rounds: (completed, total) of the seed with the fewest completed rounds.
      point: index of the cell's run that counts; None: its grid is still being searched.
      scale: smoke, trend or paper; only numbers at paper scale are compared with printed ones.
      diverged: whether the loss of any seed became NaN or infinite.
      evaluations: how many evaluations at the end are averaged, of the seed with the fewest.
    """

    cell: Cell
    by_seed: dict[int, float | None]
    rounds: tuple[int, int]
    point: int | None = 0
    scale: str = "paper"
    diverged: bool = False
    evaluations: int = 0

    @property
    def run(self) -> Run:
        """The run that counts; the first of its grid until that has been searched."""
        return self.cell.runs[self.point or 0]

    @property
    def numbers(self) -> np.ndarray:
        """Numbers of the seeds for which it is defined."""
        return np.array([number for number in self.by_seed.values() if number is not None])

    @property
    def mean(self) -> float | None:
        """Mean over seeds."""
        return float(self.numbers.mean()) if len(self.numbers) else None

    @property
    def std(self) -> float | None:
        """Standard deviation over seeds; None for fewer than two."""
        return float(self.numbers.std(ddof=1)) if len(self.numbers) > 1 else None

    @property
    def description(self) -> str:
        """What the number of one seed is, in words: which evaluations are averaged, or which target is reached."""
        total = self.rounds[1]
        first = max(total - max(self.run.config().final_evals, 1), 0) + 1
        many = f"{self.evaluations} evaluations after rounds {first} to {total}"
        averaged = f"the evaluation after round {total}" if first == total else f"the {many}"
        return self.cell.measure.describe(averaged, self.scale)

    @property
    def difference(self) -> float | None:
        """Computed minus printed, at paper scale."""
        printed = self.cell.printed.number if self.cell.printed and self.scale == "paper" else None
        return None if printed is None or self.mean is None else self.mean - printed

    @property
    def z(self) -> float | None:
        """Difference divided by the square root of the sum of both variances; None if neither is known."""
        stds = [s for s in (self.std, self.cell.printed.deviation if self.cell.printed else None) if s]
        return None if self.difference is None or not stds else self.difference / float(np.hypot.reduce(stds))

    @property
    def reproduced(self) -> bool | None:
        """Whether an accuracy agrees within one percentage point or two standard deviations; None: not comparable."""
        if self.difference is None or not isinstance(self.cell.measure, MeanLast):
            return None
        points = abs(self.difference) * 100 / self.cell.measure.factor
        return points <= POINTS or (self.z is not None and abs(self.z) <= DEVIATIONS)


def value(store: ResultStore, cell: Cell, scale: str) -> Value:
    """Returns the number of a cell as far as its runs have been trained.

    Args:
      store: where records are read.
      cell: of a table or figure.
      scale: smoke, trend or paper.
    """
    constant = cell.measure.constant(cell.runs[0].config().algorithm)
    if constant is not None:
        return Value(cell, {0: constant}, (0, 0), scale=scale)
    point = best_point(store, cell)
    if point is None:
        return Value(cell, {}, (0, cell.runs[0].num_rounds), None, scale)
    run = cell.runs[point]
    own = curves(store, run, cell.read, cell.metric)
    reference = cell.reference
    if cell.measure.same_method:
        reference = run.parent.run if run.parent is not None else run
    others = curves(store, reference, metric=cell.metric) if reference is not None else {}
    by_seed = {
        seed: cell.measure.value(curve, others.get(seed), scale)
        for seed, curve in sorted(own.items())
        if len(curve.rounds)
    }
    completed = min((int(curve.rounds[-1]) for curve in own.values() if len(curve.rounds)), default=0)
    diverged = any(curve.diverged for curve in own.values())
    evaluations = min((int(curve.averaged.sum()) for curve in own.values() if curve.final is not None), default=0)
    return Value(cell, by_seed, (completed, run.num_rounds), point, scale, diverged, evaluations)


def values(store: ResultStore, item: Item, scale: str) -> list[Value]:
    """Returns the numbers of all cells of a table or figure."""
    return [value(store, cell, scale) for cell in item.cells(scale)]


@dataclasses.dataclass(frozen=True)
class Pair:
    """Two numbers that a claim compares.

    Attributes:
      position: row, column and variant of the one that should be better.
      gain: by how much it is better: percentage points of accuracy, or percent fewer rounds to a target.
      seeds: number of seeds that both have.
    """

    position: tuple[str, str, str]
    gain: float
    seeds: int


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Whether a claim holds in the computed numbers.

    Attributes:
      claim: of the paper.
      pairs: the numbers that it compares.
      in_rounds: whether rounds to a target are compared, not accuracies.
    """

    claim: Claim
    pairs: list[Pair]
    in_rounds: bool = False

    @property
    def counts(self) -> tuple[int, int, int]:
        """Number of pairs in which it shows, is too close to tell, and does not show."""
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
        counted = f"{shows} of {len(self.pairs)}" + (f", {close} within {within}" if close else "")
        mean = float(np.mean([pair.gain for pair in self.pairs]))
        gain = f"{0 - mean:+.0f} % rounds" if self.in_rounds else f"{mean:+.2f} points"
        seeds = min(pair.seeds for pair in self.pairs)
        return f"{self.word}: {counted}, {gain} on average, {seeds} seed{'s' if seeds > 1 else ''}"


def verdicts(item: Item, numbers: list[Value]) -> list[Verdict]:
    """Returns a verdict on each of an item's claims."""
    return [verdict(claim, numbers) for claim in item.claims]


def verdict(claim: Claim, numbers: list[Value]) -> Verdict:
    """Returns whether a claim holds in the numbers of a table."""
    by_position = {number.cell.position: number for number in numbers}
    pairs, in_rounds = [], False
    for better, worse in _compared(claim, by_position):
        measure = type(better.cell.measure)
        if measure is type(worse.cell.measure) and measure in GAINS:
            pair = GAINS[measure](better, worse)
            pairs += [pair] if pair is not None else []
            in_rounds = in_rounds or measure is RoundsTo
    return Verdict(claim, pairs, in_rounds)


def _compared(claim: Claim, by_position: dict[tuple[str, str, str], Value]) -> Iterator[tuple[Value, Value]]:
    """Yields (the number that should be better, the one that it is compared with)."""
    axes = ("row", "column", "variant")
    better, worse = dict(claim.better), dict(claim.worse)
    for position, number in by_position.items():
        names = dict(zip(axes, position, strict=True))
        if all(names[axis] == name for axis, name in better.items()):
            row, column, variant = (worse.get(axis, names[axis]) for axis in axes)
            other = by_position.get((row, column, variant))
            if other is not None and other is not number:
                yield number, other


def _accuracy_gain(better: Value, worse: Value) -> Pair | None:
    """Returns the gain in accuracy over the seeds that both have, or between the means if they share none."""
    factor = better.cell.measure.factor if isinstance(better.cell.measure, MeanLast) else 1
    own, others = ({s: n for s, n in number.by_seed.items() if n is not None} for number in (better, worse))
    if not own or not others:
        return None
    common = sorted(own.keys() & others.keys())
    first, second = ([each[s] for s in common] or list(each.values()) for each in (own, others))
    gain = 100 / factor * float(np.mean(first) - np.mean(second))
    return Pair(better.cell.position, gain, len(common) or min(len(own), len(others)))


def _rounds_gain(better: Value, worse: Value) -> Pair | None:
    """Returns the gain in rounds over the seeds that finished in both; a target never reached counts as all rounds."""
    ended = all(0 < number.rounds[0] == number.rounds[1] for number in (better, worse))
    both = sorted(better.by_seed.keys() & worse.by_seed.keys())
    common = [s for s in both if (better.by_seed[s], worse.by_seed[s]) != (None, None)]
    if not ended or not common:
        return None
    first, second = ([float(v.by_seed[s] or v.rounds[1]) for s in common] for v in (better, worse))
    return Pair(better.cell.position, 100 * (1 - float(np.mean(first) / np.mean(second))), len(common))


# Measures that can be compared -> how.
GAINS = {MeanLast: _accuracy_gain, RoundsTo: _rounds_gain}
