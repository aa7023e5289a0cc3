"""What is read off a curve: mean of the last rounds, rounds to a target, speed-up, communication."""

import dataclasses
from typing import NamedTuple

import numpy as np

from fedwin.algorithms import ALGORITHMS
from fedwin.analysis import rounds_to_target, speedup
from fedwin.registry.choices import parse

from .trajectories import Fields


class Curve(NamedTuple):
    """Accuracy of one read-out of one seed.

    Attributes:
      rounds: of its evaluations [n], growing.
      accuracy: in [0, 1] [n].
      last: how many rounds at the end are averaged.
      num_rounds: of the run.
      diverged: whether the seed met NaN or infinity.
    """

    rounds: np.ndarray
    accuracy: np.ndarray
    last: int
    num_rounds: int
    diverged: bool

    @property
    def final(self) -> float | None:
        """Mean accuracy of the last rounds; None for a seed that diverged or has not ended."""
        if self.diverged or not len(self.rounds) or self.rounds[-1] < self.num_rounds:
            return None
        return float(self.accuracy[self.rounds > self.num_rounds - self.last].mean())


# Units of accuracies.
PERCENT, SHARE = "%", "fraction"


@dataclasses.dataclass(frozen=True)
class Measure:
    """How a number of a table comes from a curve.

    Attributes:
      unit: of the number.
      name: what axes call it.
      reference: fields, on top of base and column, of another run that is needed; None: none.
      same_method: whether the reference is the run itself, or, of a fork, the one that it parted from.
    """

    unit: str = ""
    name: str = ""
    reference: Fields | None = None
    same_method: bool = False

    def value(self, curve: Curve, other: Curve | None, scale: str) -> float | None:
        """Returns the number of one seed; None where there is none.

        Args:
          curve: what is measured.
          other: of the reference's model, same seed.
          scale: smoke, trend or paper.
        """
        raise NotImplementedError

    def constant(self, algorithm: str) -> float | None:
        """Returns the number that needs no run; None where one is needed."""
        return None


@dataclasses.dataclass(frozen=True)
class MeanLast(Measure):
    """Mean accuracy of the last rounds, in percent or as a fraction."""

    unit: str = PERCENT

    @property
    def factor(self) -> int:
        """What a share in [0, 1] is multiplied by."""
        return 100 if self.unit == PERCENT else 1

    def value(self, curve, other, scale):
        """See Measure."""
        final = curve.final
        return None if final is None else final * self.factor


@dataclasses.dataclass(frozen=True)
class RoundsTo(Measure):
    """First evaluated round with at least the target accuracy, without smoothing.

    Attributes:
      percent: the target at paper scale.
      trend: the target at other scales.
    """

    unit: str = "rounds"
    name: str = "rounds to the target"
    percent: float = 0.0
    trend: float = 0.0

    def value(self, curve, other, scale):
        """See Measure."""
        target = (self.percent if scale == "paper" else self.trend) / 100
        return rounds_to_target(curve.accuracy, target, curve.rounds)


@dataclasses.dataclass(frozen=True)
class Speedup(Measure):
    """Rounds that the reference, the base method, needs for a target over those that this method needs.

    Attributes:
      percent: the target at paper scale.
      trend: the target at other scales.
    """

    unit: str = "x"
    percent: float = 0.0
    trend: float = 0.0

    def value(self, curve, other, scale):
        """See Measure."""
        if other is None:
            return None
        to = RoundsTo(percent=self.percent, trend=self.trend)
        return speedup(to.value(other, None, scale), to.value(curve, None, scale))


@dataclasses.dataclass(frozen=True)
class Gain(Measure):
    """Percentage points of the last rounds' mean accuracy above that of the reference.

    The reference is the same run's trained model.
    """

    unit: str = "pp"
    same_method: bool = True

    def value(self, curve, other, scale):
        """See Measure."""
        if other is None or curve.final is None or other.final is None:
            return None
        return 100 * (curve.final - other.final)


@dataclasses.dataclass(frozen=True)
class Overhead(Measure):
    """Models that are sent per client and round, over FedAvg's two, as the papers count them."""

    unit: str = "x"

    def constant(self, algorithm):
        """Returns the factor of an algorithm's text."""
        return reported_overhead(algorithm)


def reported_overhead(algorithm: str) -> float | None:
    """Returns the factor that the GHB paper prints for a method, from the registry of algorithms.

    >>> reported_overhead("mime:beta=0.9")
    3.0
    """
    choice = parse(algorithm)
    plain, _, momentum = ALGORITHMS.entries[choice.name].facts["reported"].partition(" ")
    text = momentum.strip("()") if momentum and choice.params.get("beta") else plain
    return float(text.rstrip("x")) if text.endswith("x") else None
