"""Means over seeds, paired differences and interquartile means over tasks, with confidence intervals."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedwin.errors import UserError

# Coverage of all intervals.
CONFIDENCE = 0.95
# Resamples of a bootstrap; its generator starts from a fixed seed, so that the same numbers give the same interval.
RESAMPLES, BOOTSTRAP_SEED = 10_000, 0


class Interval(NamedTuple):
    """Mean over seeds with its confidence interval.

    Attributes:
      mean: over the seeds that count; None without any.
      half_width: of the confidence interval; None with fewer than two seeds.
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

    Example:
      >>> mean_interval({0: 1.0, 1: 3.0, 2: None})
      Interval(mean=2.0, half_width=12.706204736174694, seeds=2, of_seeds=3)
    """
    finite = np.array([value for value in values.values() if _counts(value)], np.float64)
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

    Effects of the seed on both (partition, initial model, cohorts) cancel, so that the interval is narrower than those
    of the two means. Seeds that only one of them has are left out.

    Args:
      method: seed -> number; None, NaN or an infinity marks a diverged seed.
      first: the baseline, likewise; a seed that diverged in either is left out.

    Example:
      >>> paired_interval({0: 1.0, 1: 3.0}, {0: 0.0, 1: 2.0})
      Interval(mean=1.0, half_width=0.0, seeds=2, of_seeds=2)
    """
    both = [seed for seed in method if seed in first]
    return mean_interval({seed: _difference(method[seed], first[seed]) for seed in both})


def interquartile_mean(values) -> float:
    """Computes the mean of the middle half: a quarter of the values is left out at either end, rounded down.

    Args:
      values: numbers of any shape, of all tasks and seeds together.

    Source: Agarwal et al., Deep Reinforcement Learning at the Edge of the Statistical Precipice, 2021,
      https://arxiv.org/abs/2108.13264

    Example:
      >>> interquartile_mean([0, 1, 2, 3, 100])
      2.0
    """
    ordered = np.sort(np.asarray(values, np.float64), axis=None)
    cut = len(ordered) // 4
    return float(np.mean(ordered[cut : len(ordered) - cut]))


def bootstrap_interval(tasks: Sequence[Sequence[float]]) -> tuple[float, tuple[float, float]]:
    """Computes the interquartile mean over tasks and seeds with its stratified bootstrap interval.

    A resample draws, in each task separately, as many of its values as it has, with replacement. The interval is
    between percentiles of the resamples' interquartile means. With few seeds it is too narrow, as bootstraps are.

    Args:
      tasks: for each task the values of its seeds; numbers of seeds may differ.

    Returns:
      (interquartile mean, (lower, upper) bound).

    Raises:
      UserError: when a task has no values.

    Source: https://arxiv.org/abs/2108.13264

    Example:
      >>> bootstrap_interval([[1.0, 1.0, 1.0], [1.0, 1.0]])
      (1.0, (1.0, 1.0))
    """
    arrays = [np.asarray(values, np.float64) for values in tasks]
    if not arrays or not all(len(values) for values in arrays):
        raise UserError("bootstrap_interval: every task needs at least one value.")
    generator = np.random.default_rng(BOOTSTRAP_SEED)
    drawn = [values[generator.integers(0, len(values), (RESAMPLES, len(values)))] for values in arrays]
    ordered = np.sort(np.concatenate(drawn, 1), axis=1)
    cut = ordered.shape[1] // 4
    means = ordered[:, cut : ordered.shape[1] - cut].mean(1)
    tail = 50 * (1 - CONFIDENCE)
    lower, upper = np.percentile(means, [tail, 100 - tail])
    return interquartile_mean(np.concatenate(arrays)), (float(lower), float(upper))


def improvement_probability(method: Sequence[Sequence[float]], baseline: Sequence[Sequence[float]]) -> float:
    """Computes the mean over tasks of the probability that a method's run is better than a run of the baseline.

        P = (1 / tasks) sum_t (1 / (n_t m_t)) sum_ij [x_ti > y_tj] + [x_ti = y_tj] / 2

    Args:
      method: for each task the values of its seeds, larger is better.
      baseline: likewise; tasks in the same order, numbers of seeds may differ.

    Returns:
      P in [0, 1].

    Source: https://arxiv.org/abs/2108.13264

    Example:
      >>> improvement_probability([[1.0, 3.0]], [[2.0, 2.0]])
      0.5
    """
    shares = []
    for x, y in zip(method, baseline, strict=True):
        above = np.asarray(x, np.float64)[:, None] - np.asarray(y, np.float64)
        shares.append(float(np.mean((above > 0) + 0.5 * (above == 0))))
    return float(np.mean(shares))


def _counts(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _difference(value: float | None, reference: float | None) -> float | None:
    if value is None or reference is None or not (math.isfinite(value) and math.isfinite(reference)):
        return None
    return value - reference
