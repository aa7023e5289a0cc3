"""Numbers of tables and figures, computed from the stored curves and compared with the printed ones."""

import dataclasses
from collections.abc import Collection, Iterable

import numpy as np

from fedwin.data import DATASETS
from fedwin.registry import parse

from ..papers.items import Cell, Item
from ..papers.measures import MeanLast
from ..papers.trajectories import Run
from .results import Results, curves
from .runs import best_point

# A number agrees with the printed one within this many percentage points and this many standard deviations.
POINTS, DEVIATIONS = 1.0, 2.0
AGREES, NEAR, DIFFERS = "agrees", "near", "differs"
# A method whose mean accuracy is below this multiple of chance does not train; a comparison with it says nothing.
CHANCE_FACTOR = 1.5
# Names of a cell's row, column and variant.
Position = tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Value:
    """A computed number and the printed one.

    Attributes:
      cell: cell of the table.
      by_seed: seed -> number; None if it is undefined (the seed diverged, or never reached the target).
      rounds: (completed, total) of the seed with the fewest completed rounds, among those that did not diverge.
      point: index of the cell's run that counts; None: its grid is still being searched.
      scale: smoke, trend or paper; only numbers at paper scale are compared with printed ones.
      diverged: whether the loss of any seed became NaN or infinite.
      evaluations: how many evaluations at the end are averaged, of the seed with the fewest.
      jump: standard deviation over those evaluations, mean over seeds; None for fewer than two.
    """

    cell: Cell
    by_seed: dict[int, float | None]
    rounds: tuple[int, int]
    point: int | None = 0
    scale: str = "paper"
    diverged: bool = False
    evaluations: int = 0
    jump: float | None = None

    @property
    def run(self) -> Run:
        """The run that counts; the first of its grid until that has been searched."""
        return self.cell.runs[self.point or 0]

    @property
    def defined(self) -> dict[int, float]:
        """Seed -> number, of the seeds for which it is defined."""
        return {seed: number for seed, number in self.by_seed.items() if number is not None}

    @property
    def factor(self) -> int:
        """Factor from an accuracy in [0, 1] to the unit of its table; 1 for other numbers."""
        return self.cell.measure.factor if isinstance(self.cell.measure, MeanLast) else 1

    @property
    def mean(self) -> float | None:
        """Mean over seeds."""
        return float(np.mean(list(self.defined.values()))) if self.defined else None

    @property
    def std(self) -> float | None:
        """Standard deviation over seeds; None for fewer than two."""
        return float(np.std(list(self.defined.values()), ddof=1)) if len(self.defined) > 1 else None

    @property
    def description(self) -> str:
        """The measure of one seed in words: the evaluations that are averaged, or the target that is reached."""
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
    def agreement(self) -> str | None:
        """How an accuracy compares with the printed one; None: it is not comparable.

        Within one percentage point it agrees if it is within two standard deviations over seeds as well, and is near
        if it is not, or if no standard deviation is known: one seed, and none printed. Otherwise it differs.
        """
        if self.difference is None or not isinstance(self.cell.measure, MeanLast):
            return None
        if abs(self.difference) * 100 / self.factor > POINTS:
            return DIFFERS
        return AGREES if self.z is not None and abs(self.z) <= DEVIATIONS else NEAR

    @property
    def share(self) -> float:
        """Mean accuracy in [0, 1]; NaN if it has none, or that of some classes or of an attack."""
        measure = self.cell.measure
        accuracy = self.mean if isinstance(measure, MeanLast) and not measure.metric else None
        return float("nan") if accuracy is None else accuracy / self.factor

    @property
    def near_chance(self) -> bool:
        """Whether the method does not train: its mean accuracy is below CHANCE_FACTOR times chance."""
        return self.share < least_trained(self.run)


def common_seeds(available: Iterable[Collection[int]]) -> set[int]:
    """Returns the seeds that all lines or points of a panel have; all seeds if they have none in common."""
    each = [set(seeds) for seeds in available if seeds]
    return (set.intersection(*each) or set.union(*each)) if each else set()


def least_trained(run: Run) -> float:
    """Returns CHANCE_FACTOR times the accuracy of chance; 0 where the registry does not know the number of classes."""
    classes = DATASETS.entries[parse(run.config().dataset).name].facts["classes"]
    return CHANCE_FACTOR / classes if classes else 0.0


def value(results: Results, cell: Cell) -> Value:
    """Returns the number of a cell as far as its runs have been trained."""
    scale = results.scale
    constant = cell.measure.constant(cell.runs[0].config().algorithm)
    if constant is not None:
        return Value(cell, {0: constant}, (0, 0), scale=scale)
    point = best_point(results, cell)
    if point is None:
        return Value(cell, {}, (0, cell.runs[0].num_rounds), None, scale)
    run = cell.runs[point]
    own = curves(results, run, cell.read, cell.metric)
    reference = cell.reference
    if cell.measure.same_method:
        reference = run.parent.run if run.parent is not None else run
    others = curves(results, reference, metric=cell.metric) if reference is not None else {}
    by_seed = {seed: cell.measure.value(curve, others.get(seed), scale) for seed, curve in sorted(own.items())}
    diverged = any(curve.diverged for curve in own.values())
    counted = [curve for curve in own.values() if not curve.diverged] or own.values()
    completed = min((int(curve.rounds[-1]) for curve in counted), default=0)
    ended = [curve for curve in own.values() if curve.final is not None]
    evaluations = min((int(curve.averaged.sum()) for curve in ended), default=0)
    jump = None
    if evaluations > 1 and isinstance(cell.measure, MeanLast):
        jump = float(np.mean([cell.measure.factor * curve.accuracy[curve.averaged].std(ddof=1) for curve in ended]))
    return Value(cell, by_seed, (completed, run.num_rounds), point, scale, diverged, evaluations, jump)


def values(results: Results, item: Item) -> list[Value]:
    """Returns the numbers of all cells of a table or figure."""
    return [value(results, cell) for cell in item.cells(results.scale)]
