"""Means over seeds, paired differences and means over comparisons, with confidence intervals and tests."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from fedwin.errors import UserError
from fedwin.registry.ranges import one_of

# Coverage of all intervals.
CONFIDENCE = 0.95
# Corrections of the level of several tests for their number.
Correction = Literal["none", "holm", "benjamini_hochberg"]


class Interval(NamedTuple):
    """Mean over seeds with its confidence interval.

    Attributes:
      mean: mean over the seeds that count; None without any.
      half_width: half the width of the confidence interval; None with fewer than two seeds.
    """

    mean: float | None
    half_width: float | None
    seeds: int
    of_seeds: int

    @property
    def bounds(self) -> tuple[float, float] | None:
        """(lower, upper) bound of the interval, or None."""
        if self.mean is None or self.half_width is None:
            return None
        return self.mean - self.half_width, self.mean + self.half_width


def mean_interval(values: Mapping[Any, float | None]) -> Interval:
    """Computes the mean over seeds with Student's t interval.

        mean +- t(n - 1, (1 + CONFIDENCE) / 2) std / sqrt(n),   std with n - 1 in its denominator

    Args:
      values: seed -> number; None, NaN or an infinity marks a diverged seed, which is left out.

    Raises:
      UserError: for anything but a mapping, as for the other functions of seeds.

    Example:
      >>> mean_interval({0: 1.0, 1: 3.0, 2: None})
      Interval(mean=2.0, half_width=12.706204736174694, seeds=2, of_seeds=3)
    """
    finite = _finite(values)
    count = len(finite)
    if not count:
        return Interval(None, None, 0, len(values))
    half = None
    if count > 1:
        from scipy.special import stdtrit  # takes a third of a second to import

        half = float(stdtrit(count - 1, (1 + CONFIDENCE) / 2) * np.std(finite, ddof=1) / math.sqrt(count))
    return Interval(float(np.mean(finite)), half, count, len(values))


def paired_interval(method: Mapping[Any, float | None], first: Mapping[Any, float | None]) -> Interval:
    """Computes the mean of method - baseline, seed by seed, with Student's t interval.

    Effects of the seed on both (partition, initial model, cohorts) cancel; where they are large, the interval is
    narrower than that of an unpaired difference. Seeds that only one of them has are left out.

    Args:
      method: seed -> number; None, NaN or an infinity marks a diverged seed.
      first: the baseline, likewise; a seed that diverged in either is left out.

    Example:
      >>> paired_interval({0: 1.0, 1: 3.0}, {0: 0.0, 1: 2.0})
      Interval(mean=1.0, half_width=0.0, seeds=2, of_seeds=2)
    """
    of, baseline = _numbers(method), _numbers(first)
    return mean_interval({seed: of[seed] - baseline[seed] for seed in of if seed in baseline})


def pooled_gains(comparisons: Sequence[Mapping[Any, float | None]]) -> dict[Any, float]:
    """Computes each seed's mean gain over several comparisons; `mean_interval` of it is their pooled interval.

        g_s = (1 / C) sum_c gain_cs

    Comparisons under one seed share partition, cohorts and initial model, so they are not independent observations: the
    seed is the unit. Seeds that a comparison does not have are left out.

    Args:
      comparisons: for each, seed -> gain; None or NaN marks a diverged seed, whose mean is NaN.

    Example:
      >>> pooled_gains([{0: 3.0, 1: 5.0, 2: 0.0}, {0: 1.0, 1: 3.0}])
      {0: 2.0, 1: 4.0}
    """
    gains = list(map(_numbers, comparisons))
    shared = [seed for seed in gains[0] if all(seed in each for each in gains)] if gains else []
    return {seed: float(np.mean([each[seed] for each in gains])) for seed in shared}


def p_value(values: Mapping[Any, float | None], by: float = 0.0) -> float:
    """Computes the two-sided p-value of Student's t test that the mean over seeds is `by`.

    Args:
      values: seed -> number; a diverged seed is left out.

    Raises:
      UserError: fewer than two seeds are left.

    Example:
      >>> round(p_value({0: 1.0, 1: 2.0, 2: 3.0}), 4)
      0.0742
    """
    from scipy.special import stdtr  # takes a third of a second to import

    numbers = _finite(values) - by  # equal ones are exactly 0
    if len(numbers) < 2:
        raise UserError("p_value: a test needs the numbers of two seeds or more.")
    error = np.std(numbers, ddof=1) / math.sqrt(len(numbers))
    distance = abs(float(np.mean(numbers)))
    return float(2 * stdtr(len(numbers) - 1, -distance / error)) if error else float(distance == 0)


def rejected(p_values: Sequence[float], method: Correction) -> list[bool]:
    """Returns which of several hypotheses are rejected at the level 1 - CONFIDENCE.

    Args:
      p_values: one for each hypothesis.
      method: 'none' corrects for nothing; 'holm' bounds the probability of any false rejection, 'benjamini_hochberg'
        the expected share of false ones among the rejections.

    Raises:
      UserError: for another method.

    Source: Holm, A Simple Sequentially Rejective Multiple Test Procedure, 1979, https://www.jstor.org/stable/4615733.
    Benjamini and Hochberg, Controlling the False Discovery Rate, 1995, https://www.jstor.org/stable/2346101.

    Example:
      >>> [sum(rejected([0.001, 0.02, 0.03, 0.2], method)) for method in ("none", "holm", "benjamini_hochberg")]
      [3, 1, 3]
    """
    one_of("rejected: method", method, get_args(Correction))
    p, count, level = np.asarray(p_values, np.float64), len(p_values), 1 - CONFIDENCE
    order = np.argsort(p, kind="stable")
    if method == "none":
        below = p <= level
    elif method == "holm":
        below = np.empty(count, bool)
        below[order] = np.logical_and.accumulate(p[order] <= level / (count - np.arange(count)))
    else:
        passed = np.flatnonzero(p[order] <= level * np.arange(1, count + 1) / max(count, 1))
        below = np.zeros(count, bool)
        below[order[: passed.max(initial=-1) + 1]] = True
    return below.tolist()


def _numbers(values: Mapping[Any, float | None]) -> dict[Any, float]:
    """Returns seed -> number; NaN for None."""
    if not isinstance(values, Mapping):
        raise UserError(f"intervals and tests take seed -> number, not a {type(values).__name__}.")
    return dict(zip(values, np.array(list(values.values()), np.float64).tolist()))


def _finite(values: Mapping[Any, float | None]) -> np.ndarray:
    return np.array([number for number in _numbers(values).values() if math.isfinite(number)])
