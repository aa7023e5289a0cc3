"""From curves to the numbers of a table, beside what is printed."""

import dataclasses

import numpy as np

from ..papers.items import Cell, Item
from ..papers.measures import MeanLast
from ..papers.trajectories import Run
from .shelf import Shelf, curves
from .tuning import chosen

# Agreement: within so many percentage points, or standard deviations.
POINTS, DEVIATIONS = 1.0, 2.0


@dataclasses.dataclass(frozen=True)
class Value:
    """One number of ours, beside the printed one.

    Attributes:
      cell: where it is.
      each: seed -> number; None where a seed has none (it diverged, or never reached the target).
      rounds: that have been trained of how many, of the seed that is furthest behind.
      chosen: which of the cell's runs; None: its grid is still being searched.
      scale: smoke, trend or paper; only the paper's own compares with what is printed.
      diverged: whether a seed met NaN or infinity.
    """

    cell: Cell
    each: dict[int, float | None]
    rounds: tuple[int, int]
    chosen: int | None = 0
    scale: str = "paper"
    diverged: bool = False

    @property
    def run(self) -> Run:
        """The run that counts; the first of its grid while none does."""
        return self.cell.runs[self.chosen or 0]

    @property
    def numbers(self) -> np.ndarray:
        """Numbers of the seeds that have one."""
        return np.array([number for number in self.each.values() if number is not None])

    @property
    def mean(self) -> float | None:
        """Mean over seeds."""
        return float(self.numbers.mean()) if len(self.numbers) else None

    @property
    def std(self) -> float | None:
        """Standard deviation over seeds; None for fewer than two."""
        return float(self.numbers.std(ddof=1)) if len(self.numbers) > 1 else None

    @property
    def difference(self) -> float | None:
        """Ours minus printed, at the paper's own scale."""
        printed = self.cell.printed.number if self.cell.printed and self.scale == "paper" else None
        return None if printed is None or self.mean is None else self.mean - printed

    @property
    def z(self) -> float | None:
        """Difference over the root of both variances; None where neither is known."""
        stds = [s for s in (self.std, self.cell.printed.deviation if self.cell.printed else None) if s]
        return None if self.difference is None or not stds else self.difference / float(np.hypot.reduce(stds))

    @property
    def reproduced(self) -> bool | None:
        """Whether ours agrees: within one percentage point or two standard deviations; None where nothing compares."""
        if self.difference is None or not isinstance(self.cell.measure, MeanLast):
            return None
        points = abs(self.difference) * 100 / self.cell.measure.factor
        return points <= POINTS or (self.z is not None and abs(self.z) <= DEVIATIONS)


def value(shelf: Shelf, cell: Cell, scale: str) -> Value:
    """Returns the number of a cell from what there is.

    Args:
      shelf: where records are.
      cell: where it is.
      scale: smoke, trend or paper.
    """
    constant = cell.measure.constant(cell.runs[0].config().algorithm)
    if constant is not None:
        return Value(cell, {0: constant}, (0, 0), scale=scale)
    number = chosen(shelf, cell)
    if number is None:
        return Value(cell, {}, (0, cell.runs[0].num_rounds), None, scale)
    run = cell.runs[number]
    own = curves(shelf, run, cell.read, cell.metric)
    reference = cell.reference
    if cell.measure.same_method:
        reference = run.parent.run if run.parent is not None else run
    others = curves(shelf, reference, metric=cell.metric) if reference is not None else {}
    total = run.num_rounds
    each = {
        seed: cell.measure.value(curve, others.get(seed), scale)
        for seed, curve in sorted(own.items())
        if len(curve.rounds)
    }
    done = min((int(curve.rounds[-1]) for curve in own.values()), default=0)
    return Value(cell, each, (done, total), number, scale, any(curve.diverged for curve in own.values()))


def values(shelf: Shelf, item: Item, scale: str) -> list[Value]:
    """Returns the numbers of all cells of a table or figure."""
    return [value(shelf, cell, scale) for cell in item.cells(scale)]
