"""Numbers of a table, computed from stored curves and compared with the printed ones."""

import dataclasses

import numpy as np

from ..papers.items import Cell, Item
from ..papers.measures import MeanLast
from ..papers.trajectories import Run
from .store import ResultStore, curves
from .tune import best_point

# A number agrees with the printed one within so many percentage points and so many standard deviations.
POINTS, DEVIATIONS = 1.0, 2.0
AGREES, NEAR, DIFFERS = "agrees", "near", "differs"


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
    def agreement(self) -> str | None:
        """How an accuracy compares with the printed one; None: it is not comparable.

        Within one percentage point it agrees if it is within two standard deviations over seeds as well, and is near
        if it is not, or if no standard deviation is known: one seed, and none printed. Otherwise it differs.
        """
        if self.difference is None or not isinstance(self.cell.measure, MeanLast):
            return None
        if abs(self.difference) * 100 / self.cell.measure.factor > POINTS:
            return DIFFERS
        return AGREES if self.z is not None and abs(self.z) <= DEVIATIONS else NEAR


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
    ended = [curve for curve in own.values() if curve.final is not None]
    evaluations = min((int(curve.averaged.sum()) for curve in ended), default=0)
    jump = None
    if evaluations > 1 and isinstance(cell.measure, MeanLast):
        jump = float(np.mean([cell.measure.factor * curve.accuracy[curve.averaged].std(ddof=1) for curve in ended]))
    return Value(cell, by_seed, (completed, run.num_rounds), point, scale, diverged, evaluations, jump)


def values(store: ResultStore, item: Item, scale: str) -> list[Value]:
    """Returns the numbers of all cells of a table or figure."""
    return [value(store, cell, scale) for cell in item.cells(scale)]
