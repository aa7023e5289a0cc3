"""Means over seeds and paired differences between methods, with Student's t intervals."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from fedwin.errors import UserError

CONFIDENCE = 0.95


class Interval(NamedTuple):
    """Mean over seeds with its confidence interval.

    Attributes:
      mean: over the seeds that count; None without any.
      half_width: of the confidence interval; None with fewer than two seeds.
      seeds: number of seeds that count.
      of_seeds: number of all seeds.
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


def mean_interval(values: Mapping[Any, float | None], confidence: float = CONFIDENCE) -> Interval:
    """Computes the mean over seeds with Student's t interval.

        mean +- t(n - 1, (1 + confidence) / 2) std / sqrt(n),   std with n - 1 in its denominator

    Args:
      values: seed -> number; None, NaN or an infinity marks a diverged seed, which is left out.
      confidence: coverage of the interval, in (0, 1).

    Returns:
      Interval.

    Raises:
      UserError: when confidence is not between 0 and 1.

    Example:
      >>> mean_interval({0: 1.0, 1: 3.0, 2: None})
      Interval(mean=2.0, half_width=12.706204736174694, seeds=2, of_seeds=3)
    """
    if not 0 < confidence < 1:
        raise UserError(f"mean_interval: confidence={confidence} must lie between 0 and 1.")
    finite = np.array([value for value in values.values() if _counts(value)], np.float64)
    count = len(finite)
    if not count:
        return Interval(None, None, 0, len(values))
    half = None
    if count > 1:
        from scipy.special import stdtrit  # takes a third of a second to import

        half = float(stdtrit(count - 1, (1 + confidence) / 2) * np.std(finite, ddof=1) / math.sqrt(count))
    return Interval(float(np.mean(finite)), half, count, len(values))


def paired_interval(
    method: Mapping[Any, float | None], first: Mapping[Any, float | None], confidence: float = CONFIDENCE
) -> Interval:
    """Computes the mean of method - baseline, seed by seed, with Student's t interval.

    Effects of the seed on both (partition, initial model, cohorts) cancel, so that the interval is narrower than those
    of the two means. Seeds that only one of them has are left out.

    Args:
      method: seed -> number; None, NaN or an infinity marks a diverged seed.
      first: the baseline, likewise; a seed that diverged in either is left out.
      confidence: coverage of the interval, in (0, 1).

    Returns:
      Interval.

    Raises:
      UserError: when confidence is not between 0 and 1.

    Example:
      >>> paired_interval({0: 1.0, 1: 3.0}, {0: 0.0, 1: 2.0})
      Interval(mean=1.0, half_width=0.0, seeds=2, of_seeds=2)
    """
    both = [seed for seed in method if seed in first]
    return mean_interval({seed: _difference(method[seed], first[seed]) for seed in both}, confidence)


def _counts(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _difference(value: float | None, reference: float | None) -> float | None:
    if value is None or reference is None or not (math.isfinite(value) and math.isfinite(reference)):
        return None
    return value - reference
