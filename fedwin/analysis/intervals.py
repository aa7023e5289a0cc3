"""Means over seeds and paired differences between methods, with Student's t intervals."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from fedwin.errors import UserError

CONFIDENCE = 0.95


class Interval(NamedTuple):
    """A mean over seeds and how far the true mean may lie from it.

    Attributes:
      mean: over the seeds that count; None without any.
      half_width: of the confidence interval; None where fewer than two seeds count, for which there is none.
      seeds: how many count.
      of_seeds: how many there are.
    """

    mean: float | None
    half_width: float | None
    seeds: int
    of_seeds: int

    @property
    def bounds(self) -> tuple[float, float] | None:
        """The ends of the interval, or None."""
        if self.mean is None or self.half_width is None:
            return None
        return self.mean - self.half_width, self.mean + self.half_width


def mean_interval(values: Mapping[Any, float | None], confidence: float = CONFIDENCE) -> Interval:
    """Returns the mean over seeds with Student's t interval.

        mean +- t(n - 1, (1 + confidence) / 2) std / sqrt(n),   std with n - 1 in its denominator

    >>> mean_interval({0: 1.0, 1: 3.0, 2: None})
    Interval(mean=2.0, half_width=12.706204736174694, seeds=2, of_seeds=3)

    Args:
      values: seed -> number; None, NaN or an infinity is a seed that diverged, which is left out.
      confidence: how often such intervals hold the true mean.

    Raises:
      UserError: confidence is not between 0 and 1.
    """
    if not 0 < confidence < 1:
        raise UserError(f"mean_interval: confidence={confidence} must lie between 0 and 1.")
    kept = np.array([value for value in values.values() if _counts(value)], np.float64)
    count = len(kept)
    if not count:
        return Interval(None, None, 0, len(values))
    half = None
    if count > 1:
        from scipy.special import stdtrit  # a third of a second, which no start should wait for

        half = float(stdtrit(count - 1, (1 + confidence) / 2) * np.std(kept, ddof=1) / math.sqrt(count))
    return Interval(float(np.mean(kept)), half, count, len(values))


def paired_interval(
    method: Mapping[Any, float | None], first: Mapping[Any, float | None], confidence: float = CONFIDENCE
) -> Interval:
    """Returns the mean of method - first, seed by seed, with Student's t interval.

    What a seed does to both (partition, initial model, cohorts) cancels, so that the interval is narrower than those of
    the two means. Seeds that only one of them has are no pairs.

    Args:
      method: seed -> number; None, NaN or an infinity is a seed that diverged.
      first: what it is compared with; a seed that diverged in either is left out.
      confidence: how often such intervals hold the true difference.
    """
    both = [seed for seed in method if seed in first]
    return mean_interval({seed: _difference(method[seed], first[seed]) for seed in both}, confidence)


def _counts(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _difference(value: float | None, reference: float | None) -> float | None:
    if value is None or reference is None or not (math.isfinite(value) and math.isfinite(reference)):
        return None
    return value - reference
