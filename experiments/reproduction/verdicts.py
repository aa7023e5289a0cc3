"""Verdicts on claims: 95 % intervals of paired differences over seeds and tasks."""

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

from fedwin.analysis.intervals import bootstrap_interval, improvement_probability, mean_interval
from fedwin.registry import parse

from ..papers.items import Claim, Item
from ..papers.measures import MeanLast, MeanLoss, Measure, RoundsTo
from .values import Value

# Fewer seeds give no verdict.
LEAST_SEEDS = 5
# A method whose mean accuracy is below this multiple of chance does not train; a comparison with it says nothing.
CHANCE_FACTOR = 1.5
# Number of classes of the data sets whose tables compare methods.
CLASSES = {"digits": 10, "fmnist": 10, "mnist": 10, "mnist_writers": 10, "cifar10": 10, "cifar100": 100}

# Data sets of stand-ins on which no rates were searched: methods have those of the digits, or the paper's.
UNSEARCHED = {"fmnist": "Fashion-MNIST", "mnist_writers": "MNIST by writers"}

HOLDS, CONTRADICTED, OPEN = "holds", "contradicted", "open"
NOT_COMPARABLE, FEW_SEEDS, NOT_TESTED = "not comparable", "too few seeds", "not tested"
WORDS = (HOLDS, CONTRADICTED, OPEN, NOT_COMPARABLE, FEW_SEEDS, NOT_TESTED)

RULE = f"""A verdict is an interval, never a count of cells. *{HOLDS}*: the 95 % interval of the paired difference lies
on the claim's side. *{CONTRADICTED}*: it lies on the other side. *{OPEN}*: it contains the value at which the claim
changes from true to false. Differences are paired: both sides have the seed, and with it partition, cohorts and
initial model, in common. Of one comparison the interval is Student's t over seeds; of a claim about several (data
sets, methods, parameters) it is a stratified bootstrap of the interquartile mean over comparisons and seeds, and P is
the probability that a run of the better side beats a run of the other
([definitions](https://arxiv.org/abs/2108.13264)). *{FEW_SEEDS}*: fewer than {LEAST_SEEDS} seeds, no verdict; a claim
about several comparisons leaves out those with fewer, and has no verdict if fewer than half of them are left.
*{NOT_COMPARABLE}*: a side is below {CHANCE_FACTOR:g} times chance, or two methods are compared on data on which their
rates were not searched. Intervals are not corrected for the number of claims: of twenty true null differences one
interval excludes 0 by chance."""


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Two numbers that a claim compares, seed by seed.

    Attributes:
      position: row, column and variant of the one that should be better.
      better: seed -> number of the one that should be better, larger is better.
      worse: seed -> number of the other one, of the same seeds.
      gains: seed -> by how much it is better: percentage points of accuracy, percent fewer rounds to a target, or nats
        of loss.
      sources: (run, read-out, measure) of both sides, and of what they are gains over: claims of several tables may
        compare the same numbers.
      incomparable: why the two cannot be compared; empty: they can.
    """

    position: tuple[str, str, str]
    better: dict[int, float]
    worse: dict[int, float]
    gains: dict[int, float]
    sources: tuple[Any, ...]
    incomparable: str = ""


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What the computed numbers say about a claim.

    Attributes:
      claim: of the paper.
      comparisons: the pairs of numbers that it is about.
      measure: what is compared.
    """

    claim: Claim
    comparisons: list[Comparison]
    measure: type[Measure] = MeanLast

    @property
    def identity(self) -> frozenset:
        """What is compared: equal for claims of several tables about the same numbers."""
        return frozenset((*comparison.sources, self.claim.by) for comparison in self.comparisons)

    @property
    def comparable(self) -> list[Comparison]:
        """The comparisons that say something."""
        return [comparison for comparison in self.comparisons if not comparison.incomparable]

    @property
    def counted(self) -> list[Comparison]:
        """The comparisons with enough seeds."""
        return [comparison for comparison in self.comparable if len(comparison.gains) >= LEAST_SEEDS]

    @property
    def seeds(self) -> int:
        """The smallest number of seeds of a comparison that counts, or of any without a verdict."""
        counted = self.counted if self.estimate is not None else []
        return min((len(c.gains) for c in counted or self.comparable or self.comparisons), default=0)

    @functools.cached_property  # a bootstrap of 10,000 resamples
    def estimate(self) -> tuple[float, tuple[float, float]] | None:
        """The gain and its 95 % interval; None without enough seeds in at least half of the comparisons."""
        gains = [list(comparison.gains.values()) for comparison in self.counted]
        if not gains or 2 * len(gains) < len(self.comparable):
            return None
        if len(gains) > 1:
            return bootstrap_interval(gains)
        interval = mean_interval(self.counted[0].gains)
        assert interval.mean is not None and interval.bounds is not None
        return interval.mean, interval.bounds

    @property
    def word(self) -> str:
        """The verdict without its numbers."""
        if not self.comparisons:
            return NOT_TESTED
        if not self.comparable:
            return NOT_COMPARABLE
        if self.estimate is None:
            return FEW_SEEDS
        _, (lower, upper) = self.estimate
        return HOLDS if lower > self.claim.by else CONTRADICTED if upper < self.claim.by else OPEN

    @property
    def numbers(self) -> str:
        """What the verdict is based on; '' for a claim that was not tested."""
        if not self.comparisons:
            return ""
        if not self.comparable:
            return self.comparisons[0].incomparable
        unit, digits = UNITS.get(self.measure, ("points", 2))
        seeds = f"{self.seeds} seed{'s' if self.seeds > 1 else ''}"
        if self.estimate is None:
            mean = float(np.mean([np.mean(list(c.gains.values())) for c in self.comparable]))
            return f"{mean:+.{digits}f} {unit}, {seeds}"
        gain, (lower, upper) = self.estimate
        interval = f"[{lower:+.{digits}f}, {upper:+.{digits}f}]"
        text = f"{gain:+.{digits}f} {unit}, 95 % interval {interval}, {seeds}"
        if len(self.counted) > 1:
            sides = ([list(side.values()) for side in (c.better, c.worse)] for c in self.counted)
            better, worse = zip(*sides, strict=True)
            text += f", {len(self.counted)} comparisons, P = {improvement_probability(better, worse):.2f}"
        left_out = len(self.comparisons) - len(self.counted)
        return text + (f" ({left_out} of {len(self.comparisons)} comparisons left out)" if left_out else "")

    def __str__(self) -> str:
        return f"{self.word}: {self.numbers}" if self.comparisons else self.word


def verdicts(item: Item, numbers: list[Value]) -> list[Verdict]:
    """Returns a verdict on each of an item's claims."""
    return [verdict(claim, numbers) for claim in item.claims]


def verdict(claim: Claim, numbers: list[Value]) -> Verdict:
    """Returns what the numbers of a table say about a claim."""
    by_position = {number.cell.position: number for number in numbers}
    comparisons: list[Comparison] = []
    compared: type = MeanLast
    for better, worse in _compared(claim, by_position):
        measure = type(better.cell.measure)
        if measure is not type(worse.cell.measure) or measure not in COMPARISONS:
            continue
        if claim.over:
            bases = [_beside(number, claim.over, by_position) for number in (better, worse)]
            comparison = _gains(better, worse, *bases) if measure is MeanLast else None
        else:
            comparison = COMPARISONS[measure](better, worse)
        comparisons += [comparison] if comparison is not None else []
        compared = measure if measure in UNITS else compared
    return Verdict(claim, comparisons, compared)


def _beside(
    number: Value, axes: tuple[tuple[str, str], ...], by_position: dict[tuple[str, str, str], Value]
) -> Value | None:
    """Returns the number of the cell with other names on some axes; None if there is none."""
    names = dict(zip(("row", "column", "variant"), number.cell.position, strict=True)) | dict(axes)
    row, column, variant = names.values()
    return by_position.get((row, column, variant))


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


def _accuracies(better: Value, worse: Value) -> Comparison | None:
    """Compares accuracies over the seeds that both have, in percentage points."""
    return _compare(better, _points(better), _points(worse), (better, worse))


def _gains(better: Value, worse: Value, of_better: Value | None, of_worse: Value | None) -> Comparison | None:
    """Compares gains of accuracy over other cells, in percentage points."""
    if of_better is None or of_worse is None:
        return None
    own, others = (
        {seed: points - base[seed] for seed, points in _points(number).items() if seed in base}
        for number, base in ((better, _points(of_better)), (worse, _points(of_worse)))
    )
    return _compare(better, own, others, (better, worse, of_better, of_worse))


def _points(number: Value) -> dict[int, float]:
    """Returns seed -> accuracy in percent, of the seeds that have one."""
    factor = number.cell.measure.factor if isinstance(number.cell.measure, MeanLast) else 1
    return {seed: n * 100 / factor for seed, n in number.by_seed.items() if n is not None}


def _compare(
    better: Value, own: dict[int, float], others: dict[int, float], numbers: tuple[Value, ...]
) -> Comparison | None:
    """Returns the comparison of two sides over the seeds that both have; None without any.

    Args:
      better: the number whose position it has.
      own: seed -> number of the side that should be better, larger is better.
      others: seed -> number of the other side.
      numbers: all that both sides are computed from.
    """
    seeds = sorted(own.keys() & others.keys())
    if not seeds:
        return None
    gains = {seed: own[seed] - others[seed] for seed in seeds}
    reason = _incomparable(*numbers)
    own, others = ({s: side[s] for s in seeds} for side in (own, others))
    return Comparison(better.cell.position, own, others, gains, _sources(*numbers), reason)


def _sources(*numbers: Value) -> tuple[Any, ...]:
    """Returns what determines each number: its run, read-out and measure."""
    return tuple((number.run.key, number.cell.read, str(number.cell.measure)) for number in numbers)


def _incomparable(*numbers: Value) -> str:
    """Returns why numbers say nothing about their methods: one is near chance, or no rates were searched; or ''."""
    untrained = next(filter(near_chance, numbers), None)
    if untrained is not None:
        return f"{untrained.cell.row.title} at {100 * share(untrained):.1f} %, near chance"
    # Read-outs, wrappers and parameters of one method have its rate in common.
    methods = {parse(number.run.config().algorithm).name for number in numbers}
    data = [parse(number.run.config().dataset).name for number in numbers if number.scale != "paper"]
    unsearched = next((UNSEARCHED[name] for name in data if name in UNSEARCHED), "")
    return f"rates were not searched on {unsearched}" if unsearched and len(methods) > 1 else ""


def share(number: Value) -> float:
    """Returns the mean accuracy of a number in [0, 1]; NaN if it has none."""
    if number.mean is None or not isinstance(number.cell.measure, MeanLast):
        return float("nan")
    return number.mean / number.cell.measure.factor


def near_chance(number: Value) -> bool:
    """Whether a method does not train: its mean accuracy is below CHANCE_FACTOR times chance."""
    classes = CLASSES.get(parse(number.run.config().dataset).name)
    return classes is not None and share(number) < CHANCE_FACTOR / classes


def _rounds(better: Value, worse: Value) -> Comparison | None:
    """Compares rounds to a target over the seeds that ended in both; a target never reached counts as all rounds."""
    ended = all(0 < number.rounds[0] == number.rounds[1] for number in (better, worse))
    both = sorted(better.by_seed.keys() & worse.by_seed.keys())
    seeds = [s for s in both if (better.by_seed[s], worse.by_seed[s]) != (None, None)]
    if not ended or not seeds:
        return None
    own, others = ({s: -float(number.by_seed[s] or number.rounds[1]) for s in seeds} for number in (better, worse))
    gains = {seed: 100 * (1 - own[seed] / others[seed]) for seed in seeds}
    return Comparison(better.cell.position, own, others, gains, _sources(better, worse), _incomparable(better, worse))


def _losses(better: Value, worse: Value) -> Comparison | None:
    """Compares losses over the seeds that both have, in nats; the lower one is the better one."""
    own, others = ({s: -n for s, n in number.by_seed.items() if n is not None} for number in (better, worse))
    return _compare(better, own, others, (better, worse))


# Measures that can be compared -> how.
COMPARISONS = {MeanLast: _accuracies, RoundsTo: _rounds, MeanLoss: _losses}
# Units of their gains, and decimals; others count in points. The base class stands for numbers without a unit.
UNITS: dict[type[Measure], tuple[str, int]] = {
    RoundsTo: ("% fewer rounds", 2),
    MeanLoss: ("nats less", 3),
    Measure: ("less", 3),
}
