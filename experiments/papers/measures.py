"""Numbers computed from a curve: mean accuracy or loss of the last rounds, rounds to a target, speed-up, traffic."""

import dataclasses
from typing import NamedTuple

import numpy as np

from fedwin.algorithms import ALGORITHMS
from fedwin.analysis import rounds_to_target, speedup
from fedwin.registry.choices import parse

from .trajectories import Fields


class Curve(NamedTuple):
    """Accuracy, or another metric, of one read-out of one seed over the rounds.

    Attributes:
      rounds: rounds of the evaluations, increasing [n].
      accuracy: in [0, 1], or the values of the metric [n].
      last: how many rounds at the end are averaged.
      diverged: whether the loss became NaN or infinite.
      seconds: simulated seconds at the evaluations [n]; NaN without a clock.
    """

    rounds: np.ndarray
    accuracy: np.ndarray
    last: int
    num_rounds: int
    diverged: bool
    seconds: np.ndarray

    @property
    def final(self) -> float | None:
        """Mean over the last rounds; None if the seed diverged or has not finished."""
        if self.diverged or not len(self.rounds) or self.rounds[-1] < self.num_rounds:
            return None
        return float(self.accuracy[self.averaged].mean())

    @property
    def averaged(self) -> np.ndarray:
        """Which evaluations `final` is the mean of, never that of the untrained model [n]."""
        return self.rounds > max(self.num_rounds - self.last, 0)


# Units of accuracy.
PERCENT, SHARE, NATS = "%", "fraction", "nats"


@dataclasses.dataclass(frozen=True)
class Measure:
    """How a number of a table is computed from a curve.

    Attributes:
      name: name on axes.
      metric: metric of the evaluations in the curve; empty: accuracy.
      reference: fields, merged into those of base and column, of another run that is needed; None: none.
      same_method: whether the reference is the run itself or, for a fork, its parent.
      percent: accuracy to reach at paper scale.
      trend: accuracy to reach at other scales, in percent.
    """

    unit: str = ""
    name: str = ""
    metric: str = ""
    reference: Fields | None = None
    same_method: bool = False
    percent: float = 0.0
    trend: float = 0.0

    def value(self, curve: Curve, other: Curve | None, scale: str) -> float | None:
        """Returns the number of one seed, None if undefined; `other` is the curve of the reference run's model."""
        raise NotImplementedError

    def constant(self, algorithm: str) -> float | None:
        """Returns the number of an algorithm that needs no run; None if a run is needed."""
        return None

    def describe(self, evaluations: str, scale: str) -> str:
        """Describes the number of one seed; `evaluations` are those at the end that are averaged, in words."""
        raise NotImplementedError

    def target(self, scale: str) -> float:
        """Returns the accuracy to reach, in percent."""
        return self.percent if scale == "paper" else self.trend


@dataclasses.dataclass(frozen=True)
class MeanLast(Measure):
    """Mean accuracy of the last rounds, in percent or as a fraction."""

    unit: str = PERCENT

    @property
    def factor(self) -> int:
        """Factor from an accuracy in [0, 1] to the unit."""
        return 100 if self.unit == PERCENT else 1

    def value(self, curve, other, scale):
        return None if curve.final is None else curve.final * self.factor

    def describe(self, evaluations, scale):
        return f"mean {self.name or 'accuracy'} ({self.unit}) of {evaluations}"


@dataclasses.dataclass(frozen=True)
class MeanLoss(Measure):
    """Mean test loss of the last rounds: of a language model, nats per position of a row, its padding included."""

    unit: str = NATS
    name: str = "loss"
    metric: str = "loss"

    def value(self, curve, other, scale):
        return curve.final

    def describe(self, evaluations, scale):
        return f"mean test loss ({self.unit}) of {evaluations}"


@dataclasses.dataclass(frozen=True)
class AfterSeconds(MeanLast):
    """Accuracy after a simulated time, interpolated between evaluations."""

    seconds: float = 0.0

    def value(self, curve, other, scale):
        if curve.diverged or not curve.seconds[0] <= self.seconds <= curve.seconds[-1]:
            return None
        return self.factor * float(np.interp(self.seconds, curve.seconds, curve.accuracy))

    def describe(self, evaluations, scale):
        return f"accuracy ({self.unit}) after {self.seconds:g} simulated seconds, between two evaluations"


@dataclasses.dataclass(frozen=True)
class RoundsTo(Measure):
    """First evaluated round with at least the target accuracy, without smoothing."""

    unit: str = "rounds"
    name: str = "rounds to the target"

    def value(self, curve, other, scale):
        return rounds_to_target(curve.accuracy, self.target(scale) / 100, curve.rounds)

    def describe(self, evaluations, scale):
        return f"first evaluated round with an accuracy of at least {self.target(scale):g} %"


@dataclasses.dataclass(frozen=True)
class Speedup(Measure):
    """Rounds to a target of the reference method, divided by those of this method."""

    unit: str = "x"

    def value(self, curve, other, scale):
        if other is None:
            return None
        target = self.target(scale) / 100
        return speedup(*(rounds_to_target(each.accuracy, target, each.rounds) for each in (other, curve)))

    def describe(self, evaluations, scale):
        target = f"an accuracy of {self.target(scale):g} %"
        return f"rounds of the reference method to {target}, divided by those of this method"


@dataclasses.dataclass(frozen=True)
class Gain(Measure):
    """Mean accuracy of the last rounds minus that of the same run's trained model, in percentage points."""

    unit: str = "pp"
    same_method: bool = True

    def value(self, curve, other, scale):
        if other is None or curve.final is None or other.final is None:
            return None
        return 100 * (curve.final - other.final)

    def describe(self, evaluations, scale):
        return f"mean accuracy of {evaluations}, minus that of the same run's trained model, in percentage points"


@dataclasses.dataclass(frozen=True)
class Overhead(Measure):
    """Models sent per client and round, divided by FedAvg's two, as the papers count them."""

    unit: str = "x"

    def constant(self, algorithm):
        return reported_overhead(algorithm)

    def describe(self, evaluations, scale):
        return "models sent per client and round divided by FedAvg's two, of no run"


def reported_overhead(algorithm: str) -> float | None:
    """Returns the communication factor that the GHB paper prints for a method, from the registry of algorithms.

    >>> reported_overhead("mime:beta=0.9")
    3.0
    """
    choice = parse(algorithm)
    plain, _, momentum = ALGORITHMS.entries[choice.name].facts["reported"].partition(" ")
    text = momentum.strip("()") if momentum and choice.params.get("beta") else plain
    return float(text.rstrip("x")) if text.endswith("x") else None
