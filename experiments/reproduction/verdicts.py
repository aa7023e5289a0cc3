"""Verdicts on claims: intervals of paired differences over seeds, comparison by comparison and over all of them."""

import dataclasses
import functools
import itertools
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any, get_args

import numpy as np

from fedwin.analysis.intervals import Correction, Interval, mean_interval, p_value, pooled_gains, rejected

from ..figures import stored
from ..papers.claims import EVERY, WITHIN
from ..papers.items import Analysis, Claim, Item
from ..papers.measures import MeanLast, MeanLoss, Measure, RoundsTo
from ..records import Json
from ..tables.formats import markdown_table
from .numbers import CHANCE_FACTOR, Position, Value
from .results import READINGS

# Fewer seeds give no verdict.
LEAST_SEEDS = 5

HOLDS, CONTRADICTED, OPEN = "holds", "contradicted", "open"
NOT_COMPARABLE, FEW_SEEDS, NOT_TESTED = "not comparable", "too few seeds", "not tested"
WORDS = (HOLDS, CONTRADICTED, OPEN, NOT_COMPARABLE, FEW_SEEDS, NOT_TESTED)
# Measures whose gains are not percentage points -> their unit, that of a loss, and their decimals.
UNITS: dict[type[Measure], tuple[str, str, int]] = {
    RoundsTo: (" % fewer rounds", " % more rounds", 2),
    MeanLoss: (" nats lower", " nats higher", 3),
    Measure: (" lower", " higher", 3),
    MeanLast: (" points", " points", 2),
}
# Characters of a drawn interval, and comparisons that a verdict names.
DRAWN, MOST_NAMED = 21, 3

RULE = f"""A verdict is an interval, never a count of cells. *{HOLDS}*: the 95 % interval of the paired difference lies
on the claim's side. *{CONTRADICTED}*: it lies on the other side. *{OPEN}*: it contains the value at which the claim
changes from true to false. Differences are paired: both sides have the seed, and with it partition, cohorts and
initial model, in common. The seed is the unit: of a claim about several comparisons (data sets, methods, parameters)
the interval is Student's t of the mean over the comparisons of each seed, because comparisons under one seed are not
independent; how many of them hold by themselves stands beside it. A claim about *every* comparison holds if each does,
and is contradicted by a single one, whose level is divided by their number. One that two numbers are *within* a bound
of each other holds if the interval lies between both bounds. *{FEW_SEEDS}*: fewer than {LEAST_SEEDS} seeds, no verdict;
a claim about several comparisons leaves out those with fewer, and has no verdict if fewer than half of them are left.
*{NOT_COMPARABLE}*: a seed of a side diverged, or a side is below {CHANCE_FACTOR:g} times chance (of read-outs of one
run: all of them are)."""


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Two sides that a claim compares, over the seeds that both have.

    Attributes:
      gains: seed -> by how much the side that should be better is better: percentage points of accuracy, percent fewer
        rounds to a target, or nats of loss.
      sources: (run, read-out, measure) of both sides, and of the numbers that they are gains over: claims of several
        tables may compare the same numbers.
      incomparable: why the two cannot be compared; empty: they can.
      names: titles of the better side's row, column and variant.
      data: those that stand in for the paper's; '' for the paper's own.
    """

    gains: dict[int, float]
    sources: tuple[Any, ...]
    incomparable: str = ""
    names: tuple[str, ...] = ()
    data: str = ""


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Verdict of the computed numbers on a claim, from comparisons of a measure."""

    claim: Claim
    comparisons: list[Comparison]
    measure: type[Measure] = MeanLast

    @property
    def identity(self) -> frozenset[Any]:
        """The numbers that are compared: equal for claims of several tables about the same ones."""
        return frozenset((*comparison.sources, self.claim.by, self.claim.how) for comparison in self.comparisons)

    @property
    def comparable(self) -> list[Comparison]:
        """The comparisons without a reason against them."""
        return [comparison for comparison in self.comparisons if not comparison.incomparable]

    @property
    def counted(self) -> list[Comparison]:
        """The comparisons with enough seeds."""
        return [comparison for comparison in self.comparable if len(comparison.gains) >= LEAST_SEEDS]

    @functools.cached_property
    def estimate(self) -> Interval | None:
        """The mean gain over comparisons and seeds; None without enough seeds in at least half of the comparisons."""
        counted = self.counted
        if not counted or 2 * len(counted) < len(self.comparable):
            return None
        pooled = mean_interval(pooled_gains([comparison.gains for comparison in counted]))
        return pooled if pooled.seeds >= LEAST_SEEDS else None

    @functools.cached_property
    def each(self) -> list[tuple[Comparison, Interval, str]]:
        """Every comparison that counts, its interval, and its own verdict."""
        intervals = [(comparison, mean_interval(comparison.gains)) for comparison in self.counted]
        return [(comparison, interval, self._judged(interval)) for comparison, interval in intervals]

    def _judged(self, interval: Interval) -> str:
        assert interval.bounds is not None
        (lower, upper), by = interval.bounds, self.claim.by
        if self.claim.how == WITHIN:
            inside, outside = -abs(by) < lower and upper < abs(by), upper < -abs(by) or lower > abs(by)
            return HOLDS if inside else CONTRADICTED if outside else OPEN
        return HOLDS if lower > by else CONTRADICTED if upper < by else OPEN

    @property
    def word(self) -> str:
        """The verdict without its numbers."""
        if not self.comparisons:
            return NOT_TESTED
        if not self.comparable:
            return NOT_COMPARABLE
        if self.estimate is None:
            return FEW_SEEDS
        if self.claim.how != EVERY:
            return self._judged(self.estimate)
        if {word for _, _, word in self.each} == {HOLDS}:
            return HOLDS
        return CONTRADICTED if rejected([self._p_of_one], "none")[0] else OPEN

    def _p_values(self, word: str) -> list[float]:
        return [p_value(comparison.gains, self.claim.by) for comparison, _, each in self.each if each == word]

    @property
    def _p_of_one(self) -> float:
        """p-value of 'contradicted', for which one comparison is enough: Bonferroni's, over all of them."""
        return min(1.0, min(self._p_values(CONTRADICTED), default=1.0) * len(self.each))

    @property
    def p(self) -> float:
        """Two-sided p-value of a verdict; 1 for one that is not decided.

        Where all comparisons must hold it is the largest; where one is enough, the smallest times their number.
        """
        if self.word not in (HOLDS, CONTRADICTED):
            return 1.0
        if self.claim.how == EVERY:
            return max(self._p_values(HOLDS)) if self.word == HOLDS else self._p_of_one
        pooled = pooled_gains([comparison.gains for comparison in self.counted])
        bounds = (self.claim.by, -self.claim.by) if self.claim.how == WITHIN else (self.claim.by,)
        return max(p_value(pooled, by) for by in bounds)

    @property
    def numbers(self) -> str:
        """The numbers behind the verdict; '' for a claim that was not tested."""
        if not self.comparable:
            return self.comparisons[0].incomparable if self.comparisons else ""
        if self.estimate is None:
            seeds = min(len(comparison.gains) for comparison in self.comparable)
            mean = float(np.mean([np.mean(list(c.gains.values())) for c in self.comparable]))
            return f"{self._amount(mean)}, {_seeds(seeds)}{_on(self.comparable)}"
        text = f"{self.interval(self.estimate)}, {_seeds(self.estimate.seeds)}"
        if len(self.counted) > 1:
            text += f", {len(self.counted)} comparisons: {self._tally()}"
        elif len(self.comparisons) > 1:
            text += f", of {self.name(self.counted[0])} alone"
        text += _on(self.counted)
        left_out = len(self.comparisons) - len(self.counted)
        return text + (f" ({left_out} of {len(self.comparisons)} comparisons left out)" if left_out else "")

    def _tally(self) -> str:
        """Returns how many comparisons hold by themselves, and the names of those that contradict."""
        by_word = {word: [c for c, _, own in self.each if own == word] for word in (HOLDS, OPEN, CONTRADICTED)}
        parts = [f"{len(found)} {'hold' if word == HOLDS else word}" for word, found in by_word.items() if found]
        against = [self.name(comparison) for comparison in by_word[CONTRADICTED]]
        if against and len(against) < len(self.counted):
            more = f" and {len(against) - MOST_NAMED} more" if len(against) > MOST_NAMED else ""
            parts[-1] += f" ({'; '.join(against[:MOST_NAMED])}{more})"
        return ", ".join(parts)

    def name(self, comparison: Comparison) -> str:
        """Returns the titles in which a comparison differs from the claim's others."""
        axes = list(zip(*(each.names for each in self.comparisons)))
        differing = [title for title, all_titles in zip(comparison.names, axes) if len(set(all_titles)) > 1]
        return ", ".join(differing)

    def _amount(self, gain: float) -> str:
        more, less, digits = UNITS[self.measure]
        if more == less:
            return f"{gain:+.{digits}f}{more}"
        return f"{abs(gain):.{digits}f}{more if gain >= 0 else less}"

    def interval(self, interval: Interval) -> str:
        """Returns a gain and its 95 % interval in words; in those of a loss, the interval is turned as well."""
        assert interval.mean is not None and interval.bounds is not None
        more, less, digits = UNITS[self.measure]
        lower, upper = interval.bounds
        if more != less and interval.mean < 0:
            lower, upper = -upper, -lower
        sign = "+" if more == less else ""
        return f"{self._amount(interval.mean)}, 95 % interval [{lower:{sign}.{digits}f}, {upper:{sign}.{digits}f}]"

    def __str__(self) -> str:
        return f"{self.word}: {self.numbers}" if self.comparisons else self.word


def _seeds(number: int) -> str:
    return f"{number} seed{'s' if number != 1 else ''}"


def _on(comparisons: Sequence[Comparison]) -> str:
    """Returns the data that stand in for the paper's, in words."""
    names = ", ".join(dict.fromkeys(each.data for each in comparisons if each.data))
    return f", with {names}" if names else ""


def table(found: list[Verdict]) -> str:
    """Returns a table of verdicts in Markdown: a line per claim and per comparison, each with its drawn interval."""
    lines: list[tuple[str, str, Verdict, Interval]] = []
    for each in found:
        if each.estimate is None:
            continue
        lines.append((each.claim.text, f"**{each.word}**", each, each.estimate))
        if len(each.counted) > 1:
            lines += [(f"- {each.name(comparison)}", word, each, interval) for comparison, interval, word in each.each]
    pictures: dict[type[Measure], Iterator[str]] = {}
    for measure in {each.measure for _, _, each, _ in lines}:
        pictures[measure] = iter(drawn([interval for _, _, each, interval in lines if each.measure is measure]))
    rows = [
        (text, word, each.interval(interval), f"`{next(pictures[each.measure])}`")
        for text, word, each, interval in lines
    ]
    undecided = (each for each in found if each.estimate is None and each.comparisons)
    rows += [(each.claim.text, f"**{each.word}**", each.numbers, "") for each in undecided]
    untested = sum(not each.comparisons for each in found)
    blocks = [markdown_table(("claim, and its comparisons", "verdict", "gain", "drawn"), rows)] if rows else []
    return "\n\n".join(blocks + ([f"Claims without numbers here: {untested}."] if untested else []))


def corrected(found: Sequence[Verdict]) -> dict[Correction, int]:
    """Returns how many of several verdicts are decided, by the correction of their level for the number of tests."""
    p_values = [each.p for each in found if each.estimate is not None]
    return {method: sum(rejected(p_values, method)) for method in get_args(Correction)}


def drawn(intervals: Sequence[Interval]) -> list[str]:
    """Returns intervals drawn in text on one scale; `:` is no difference, `o` the mean.

    Example:
      >>> drawn([Interval(1.0, 0.5, 5, 5), Interval(-1.0, 1.0, 5, 5)])
      ['···········:··---o---', '------o----:·········']
    """
    spans = [(*(interval.bounds or (0.0, 0.0)), interval.mean or 0.0) for interval in intervals]
    least, most = (end([0.0, *itertools.chain(*spans)]) for end in (min, max))
    place = lambda x: round((DRAWN - 1) * (x - least) / (most - least)) if most > least else 0
    lines = []
    for lower, upper, mean in spans:
        line = ["·"] * DRAWN
        line[place(lower) : place(upper) + 1] = "-" * (place(upper) + 1 - place(lower))
        line[place(0.0)], line[place(mean)] = ":", "o"
        lines.append("".join(line))
    return lines


def verdicts(item: Item, numbers: list[Value]) -> list[Verdict]:
    """Returns a verdict on each of an item's claims."""
    return [verdict(claim, numbers) for claim in item.claims]


def verdict(claim: Claim, numbers: list[Value]) -> Verdict:
    """Returns the verdict of a table's numbers on a claim."""
    by_position: dict[Position, Value] = {number.cell.position: number for number in numbers}
    comparisons: list[Comparison] = []
    compared: type[Measure] = MeanLast
    for position, better in by_position.items():
        worse = by_position.get(_moved(position, claim.worse))
        if _moved(position, claim.better) != position or worse is None or worse is better:
            continue
        measure = type(better.cell.measure)
        if measure is not type(worse.cell.measure):
            continue
        compared = measure if measure in UNITS else compared
        moved = [_moved(number.cell.position, claim.over) for number in (better, worse) if claim.over]
        bases = [by_position[each] for each in moved if each in by_position]
        if not moved or (measure is MeanLast and len(bases) == len(moved)):
            comparison = _comparison(better, worse, bases)
            comparisons += [comparison] if comparison is not None else []
    return Verdict(claim, comparisons, compared)


def _moved(position: Position, names: tuple[tuple[str, str], ...]) -> Position:
    """Returns a position with other names on some axes."""
    return tuple((dict(zip(("row", "column", "variant"), position, strict=True)) | dict(names)).values())


def _sizes(number: Value) -> dict[int, float]:
    """Returns seed -> accuracy in percent, or minus a loss, or minus the rounds to a target after the last round."""
    if isinstance(number.cell.measure, MeanLast):
        return {seed: n * 100 / number.factor for seed, n in number.defined.items()}
    if isinstance(number.cell.measure, MeanLoss):
        return {seed: -loss for seed, loss in number.defined.items()}
    ended = 0 < number.rounds[0] == number.rounds[1]
    if not ended or not isinstance(number.cell.measure, RoundsTo):
        return {}
    # A target that is never reached counts as all rounds, and one that the untrained model reaches as one.
    needed = {seed: number.rounds[1] if rounds is None else rounds for seed, rounds in number.by_seed.items()}
    return {seed: -float(max(rounds, 1)) for seed, rounds in needed.items()}


def _comparison(better: Value, worse: Value, bases: list[Value]) -> Comparison | None:
    """Compares two numbers, or their gains over two others, over the seeds that both have.

    Without any the comparison is None, or one of numbers that diverged.
    """
    numbers = (better, worse, *bases)
    own, others, *of_bases = map(_sizes, numbers)
    if of_bases:
        own, others = (
            {seed: n - base[seed] for seed, n in side.items() if seed in base}
            for side, base in zip((own, others), of_bases, strict=True)
        )
    both = sorted(own.keys() & others.keys())
    seeds = [seed for seed in both if (better.by_seed[seed], worse.by_seed[seed]) != (None, None)]
    if not seeds and not any(number.diverged for number in numbers):
        return None
    sources = tuple((number.run.key, number.cell.read, str(number.cell.measure)) for number in numbers)
    relative, cell = isinstance(better.cell.measure, RoundsTo), better.cell
    gain = lambda own, other: 100 * (1 - own / other) if relative else own - other
    gains = {seed: gain(own[seed], others[seed]) for seed in seeds}
    names = (cell.row.title, cell.heading, cell.variant.title)
    return Comparison(gains, sources, _incomparable(*numbers), names, cell.data)


def _incomparable(*numbers: Value) -> str:
    """Returns why numbers say nothing about their methods: diverged or near chance; or ''."""
    for number in numbers:
        if number.diverged:
            return f"{number.cell.row.title} diverged"
    # A run that any of its read-outs shows to be trained is: one that a read-out ruins is the claim's evidence.
    trained = {number.run.key for number in numbers if not number.near_chance}
    untrained = next((number for number in numbers if number.run.key not in trained), None)
    if untrained is not None:
        return f"{untrained.cell.row.title} at {100 * untrained.share:.1f} %, near chance"
    return ""


# Figures of trained models

# Name -> metric -> number, read off a figure.
Readings = dict[str, dict[str, float]]
# The split of the examples that claims are about.
SPLIT = "test"
# Metrics that are shares, whose differences count in percentage points.
SHARES = ("error", "test_error", "train_error", "heter_error")


def readings(figure: Json) -> Readings:
    """Returns name -> metric -> number; of numbers that belong together the best.

    Of a plane 'mean' and 'corner', the mean of its three models and the best of them; of a line 'first', 'second',
    'end', the better of these two, and 'between', the best point between them; of factors the last round of every run.
    """
    found: Readings = {}
    if figure["kind"] == "plane":
        for mark in figure["points"]:
            best = found.setdefault(mark["role"], {"loss": np.inf, "error": np.inf})
            least = lambda metric: np.inf if mark[metric] is None else mark[metric]  # None: not finite
            found[mark["role"]] = {metric: min(number, least(metric)) for metric, number in best.items()}
    elif figure["kind"] == "line":
        s, at = np.array(figure["s"]), figure["splits"][SPLIT]
        lines = {"loss": np.array(at["loss"], float), "error": 1 - np.array(at["accuracy"], float)}
        inside = (s > 1e-9) & (s < 1 - 1e-9)
        for name, end in (("first", 0), ("second", 1)):
            found[name] = {metric: float(each[np.argmin(np.abs(s - end))]) for metric, each in lines.items()}
        found["end"] = {metric: min(found["first"][metric], found["second"][metric]) for metric in lines}
        found["between"] = {metric: float(each[inside].min()) for metric, each in lines.items()}
    elif figure["kind"] == "factors":
        for run in figure["runs"]:
            found[run["label"]] = {name: each[-1] for name, each in run.items() if name not in ("label", "rounds")}
    return found


def figure_verdicts(item: Analysis, scale: str, path: pathlib.Path | None) -> list[Verdict]:
    """Returns a verdict on each of a figure's claims, by the file of its data; without one none is tested."""
    by_seed: dict[str, Readings] = stored.read(path)[0].get(READINGS, {}) if path is not None else {}
    data = ", ".join(dict.fromkeys(filter(None, item.stand_ins(scale))))
    # Two figures may show the same models.
    models = (item.kind, tuple(run.key for run in item.trajectories(scale).values()), item.checkpoints(scale))
    judged = []
    for claim in item.claims:
        keys = [(dict(side)["reading"], dict(side)["metric"]) for side in (claim.better, claim.worse)]
        metric = keys[0][1]
        factor = 100 if metric in SHARES else 1
        better, worse = (
            {int(seed): -factor * n for seed, own in by_seed.items() if (n := own.get(name, {}).get(of)) is not None}
            for name, of in keys
        )
        gains = {seed: better[seed] - worse[seed] for seed in better if seed in worse}
        measure = MeanLast if metric in SHARES else MeanLoss if metric == "loss" else Measure
        compared = [Comparison(gains, tuple((models, *key) for key in keys), data=data)]
        judged.append(Verdict(claim, compared, measure) if gains else Verdict(claim, []))
    return judged
