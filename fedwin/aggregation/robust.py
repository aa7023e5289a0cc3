"""Robust aggregators: median, trimmed mean, geometric median, bounded norms and Krum."""

import fractions
import math
from typing import Annotated

import jax.numpy as jnp
import numpy as np
from jax import lax

from fedwin import core
from fedwin.aggregation.aggregator import AGGREGATORS, Aggregator, uniform_mean
from fedwin.errors import UserError
from fedwin.registry.ranges import NonNegativeInt, Positive, PositiveInt, Range


def ascending(x):
    """Sorts every column with a bitonic network of elementwise minima and maxima.

    On a CPU this is 4 to 15 times as fast as jnp.sort, which calls its comparison for every pair of numbers.

    Args:
      x: [C, d], without NaN.

    Returns:
      [P, d], sorted along the first axis; P is the next power of two, and the places beyond C are inf.

    Example:
      >>> ascending(jnp.array([[3.0], [1.0], [2.0]]))[:, 0].tolist()
      [1.0, 2.0, 3.0, inf]
    """
    size, length = x.shape
    places = 1 << (size - 1).bit_length()
    x = jnp.concatenate([x, jnp.full((places - size, length), jnp.inf, x.dtype)])
    width = 2
    while width <= places:
        # Two sorted halves, the second one reversed, and then ever smaller halves of the result.
        pairs = x.reshape(-1, 2, width // 2, length)
        low, high = pairs[:, 0], pairs[:, 1, ::-1]
        x = jnp.stack([jnp.minimum(low, high), jnp.maximum(low, high)[:, ::-1]], 1).reshape(places, length)
        step = width // 4
        while step:
            pairs = x.reshape(-1, 2, step, length)
            low, high = pairs[:, 0], pairs[:, 1]
            x = jnp.stack([jnp.minimum(low, high), jnp.maximum(low, high)], 1).reshape(places, length)
            step //= 2
        width *= 2
    return x


def _ordered(steps, present):
    """Returns the coordinates of clients that are present in ascending order, [P, d], and then infinities.

    NaN counts as inf, so that a client that sends it is at the end.
    """
    return ascending(jnp.where(present[:, None] & ~jnp.isnan(steps), steps, jnp.inf))


@AGGREGATORS.register("median", paper="yin2018byzantine")
def median(setting: core.Setting) -> Aggregator:
    """Median of each coordinate of the clients' steps; for an even number of clients, the mean of the middle two.

        v_k = median_i (y_i - x)_k

    Every client counts equally, regardless of the algorithm's weights.

    Source: Yin et al., Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates, 2018,
    https://arxiv.org/abs/1803.01498.

    Example:
      >>> from fedwin import testing
      >>> p = testing.quadratic([1, 1, 1], [0, 1, 50], [2.0], steps=5, lr=0.1, schedule=((0, 1, 2),))
      >>> testing.run_rounds("fedavg", aggregate="median", problem=p)  # toward the client in the middle, at 1
      {'model': [391.06, 394.815, 397.06]}
    """

    def combine(steps, weights, present):
        n, ordered = jnp.sum(present), _ordered(steps, present)
        return (ordered[jnp.maximum(n - 1, 0) // 2] + ordered[n // 2]) / 2

    return Aggregator("median", combine)


@AGGREGATORS.register("trimmed_mean", paper="yin2018byzantine")
def trimmed_mean(setting: core.Setting, *, share: Annotated[float, Range(0, 0.5, open_most=True)] = 0.1) -> Aggregator:
    """Mean of every coordinate without its b smallest and b largest values, b = floor(share n) of n clients.

        v_k = 1 / (n - 2 b) sum of the (b + 1)-th to (n - b)-th smallest (y_i - x)_k,   b = floor(share n)

    Every client counts equally, regardless of the algorithm's weights; share=0 is the uniform mean.

    Args:
      share: share of the clients that is removed at each end.

    Raises:
      UserError: when a positive `share` removes no client of a cohort.

    Source: Yin et al., Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates, 2018,
    https://arxiv.org/abs/1803.01498.

    Example:
      >>> from fedwin import testing
      >>> p = testing.quadratic([1, 1, 1], [0, 1, 50], [2.0], steps=5, lr=0.1, schedule=((0, 1, 2),))
      >>> trimmed = testing.run_rounds("fedavg", aggregate="trimmed_mean:share=0.4", problem=p)
      >>> trimmed == testing.run_rounds("fedavg", aggregate="median", problem=p)  # one of three clients remains
      True
    """
    exact, cohort = fractions.Fraction(str(share)), setting.clients_per_round
    if share and math.floor(exact * cohort) < 1:
        least = f"share to at least {math.ceil(1000 / cohort) / 1000:g}"
        least = least if cohort > 2 else f"--clients_per_round to at least {math.ceil(1 / exact)}"
        raise UserError(
            f"trimmed_mean: share={share} of {cohort} clients that are drawn removes none; set {least}, or share to 0 "
            f"for the uniform mean."
        )

    def combine(steps, weights, present):
        n, ordered = jnp.sum(present), _ordered(steps, present)
        # A table, because 0.29 * 100 is less than 29 in floating-point arithmetic.
        removed = jnp.asarray([math.floor(exact * number) for number in range(len(steps) + 1)])[n]
        rank = np.arange(len(ordered))[:, None]
        return uniform_mean(ordered, (rank >= removed) & (rank < n - removed))

    return Aggregator("trimmed_mean", combine)


@AGGREGATORS.register("geometric_median", paper="pillutla2022robust")
def geometric_median(setting: core.Setting, *, iterations: PositiveInt = 10, smoothing: Positive = 1e-6) -> Aggregator:
    """Geometric median: the v that minimizes sum_i p_i ||v - (y_i - x)||, by Weiszfeld iterations from v = 0.

        b_i = p_i / max(smoothing, ||v - d_i||),   v <- sum_i b_i d_i / sum_i b_i,   d_i = y_i - x

    The weights p_i are the algorithm's, as in the paper. v = 0 is the server's model; the paper starts from the mean,
    which an attacker can move anywhere. A step that is not finite does not count.

    Args:
      iterations: number of Weiszfeld iterations.
      smoothing: nu, the smallest distance to divide by.

    Source: Pillutla et al., Robust Aggregation for Federated Learning, 2022, https://arxiv.org/abs/1912.13445.

    Example:
      >>> from fedwin import testing
      >>> p = testing.quadratic([1, 1, 1], [0, 1, 50], [2.0], steps=5, lr=0.1, schedule=((0, 1, 2),))
      >>> testing.run_rounds("fedavg", aggregate="geometric_median", problem=p)  # in one dimension, the median
      {'model': [391.06, 394.815, 397.06]}
    """

    def combine(steps, weights, present):
        counted = present & jnp.all(jnp.isfinite(steps), 1)
        steps, weights = jnp.where(counted[:, None], steps, 0), jnp.where(counted, weights, 0)

        def iterate(_, v):
            b = weights / jnp.maximum(smoothing, jnp.sqrt(jnp.sum(jnp.square(steps - v), 1)))
            return jnp.matmul(b, steps, precision="highest") / jnp.maximum(jnp.sum(b), jnp.finfo(b.dtype).tiny)

        return lax.fori_loop(0, iterations, iterate, jnp.zeros_like(steps[0]))

    return Aggregator("geometric_median", combine)


@AGGREGATORS.register("norm_bound", paper="sun2019can")
def norm_bound(setting: core.Setting, *, norm: Positive) -> Aggregator:
    """Weighted mean of the steps, each clipped to a norm by the server, which attackers can't evade.

        v = sum_i p_i d_i min(1, norm / ||d_i||),   d_i = y_i - x

    The weights p_i are the algorithm's. `--wrap=clip` is the same bound, applied by the clients themselves. A step that
    is not finite does not count.

    Args:
      norm: the bound.

    Source: Sun et al., Can You Really Backdoor Federated Learning?, 2019, https://arxiv.org/abs/1911.07963.

    Example:
      >>> from fedwin import testing
      >>> bounded = testing.run_rounds("fedavg", aggregate="norm_bound:norm=0.5")
      >>> bounded == testing.run_rounds("fedavg", wrappers=["clip:norm=0.5"])  # without attackers
      True
    """

    def combine(steps, weights, present):
        counted = present & jnp.all(jnp.isfinite(steps), 1)
        steps, weights = jnp.where(counted[:, None], steps, 0), jnp.where(counted, weights, 0)
        sizes = jnp.sqrt(jnp.sum(jnp.square(steps), 1))
        cut = jnp.where(sizes > norm, norm / jnp.maximum(sizes, norm), 1)
        return jnp.matmul(weights * cut, steps, precision="highest") / jnp.maximum(jnp.sum(weights), 1e-30)

    return Aggregator("norm_bound", combine)


def squared_distances(steps):
    """Computes ||d_i - d_j||^2 of all pairs of vectors [C, d]: [C, C], symmetric to the bit; NaN or inf as vectors are.

    Example:
      >>> squared_distances(jnp.array([[0.0, 3.0], [4.0, 0.0], [4.0, 1.0]])).tolist()
      [[0.0, 25.0, 20.0], [25.0, 0.0, 1.0], [20.0, 1.0, 0.0]]
    """
    # Around the shortest vector, because the products of long vectors that are close to each other cancel.
    steps = steps - steps[jnp.nanargmin(jnp.sum(jnp.square(steps), 1))]
    products = jnp.matmul(steps, steps.T, precision="highest")
    products = (products + products.T) / 2
    squares = jnp.diagonal(products)
    return jnp.maximum(squares[:, None] + squares - 2 * products, 0)


@AGGREGATORS.register("krum", paper="blanchard2017machine", instances=("krum:f=1", "krum:f=0,m=2"))
def krum(setting: core.Setting, *, f: NonNegativeInt, m: PositiveInt = 1) -> Aggregator:
    """Krum: the mean of the m steps with the smallest sums of squared distances to their n - f - 2 nearest neighbors.

        score_i = sum of ||d_i - d_j||^2 over the n - f - 2 steps d_j nearest to d_i,   d_i = y_i - x
        v = (1/m) sum of the m steps with the lowest scores

    m = 1 is Krum, a larger m multi-Krum. Every client counts equally, regardless of the algorithm's weights. Of equal
    scores, that of the client drawn first is the lower one. n is the number of clients present: with fewer than f + 3,
    one neighbor counts; with fewer than m, all clients are chosen.

    Args:
      f: number of attackers that are tolerated in a cohort, which needs 2 f + 3 clients.
      m: number of steps that are averaged, from 1 to n - f, with n the (mean) number of clients in a round.

    Source: Blanchard et al., Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent, 2017,
    https://arxiv.org/abs/1703.02757.

    Example:
      >>> from fedwin import testing
      >>> p = testing.quadratic([1] * 5, [0, 1, 1, 2, 50], [2.0], steps=5, lr=0.1, schedule=(range(5),))
      >>> testing.run_rounds("fedavg", aggregate="krum:f=1", problem=p)  # toward one of the two clients at 1
      {'model': [234.688, 236.944, 238.303]}
    """
    cohort = setting.clients_per_round
    if cohort < 2 * f + 3:
        raise UserError(
            f"krum: f={f} needs cohorts of at least 2 f + 3 = {2 * f + 3} clients, and {cohort} are drawn; raise "
            f"--clients_per_round (or have fewer groups in --sampling=cyclic), or lower f."
        )
    if m > cohort - f:
        raise UserError(f"krum: m={m} must be at most n - f = {cohort - f}, where n={cohort} clients are drawn.")

    def combine(steps, weights, present):
        n, size = jnp.sum(present), len(steps)
        pairs = present[:, None] & present & ~jnp.eye(size, dtype=bool)
        distances = squared_distances(jnp.where(present[:, None], steps, jnp.nan))
        # NaN is sorted to the end, as inf is: a client that sends it has no near neighbors.
        nearest = jnp.sort(jnp.where(pairs, distances, jnp.inf), 1)
        scores = jnp.sum(jnp.where(jnp.arange(size) < jnp.maximum(n - f - 2, 1), nearest, 0), 1)
        # Clients that are present come first, even with an infinite score; then by score, then by place.
        order = jnp.lexsort((scores, ~present))
        chosen = jnp.zeros((size, 1), bool).at[order, 0].set(jnp.arange(size) < jnp.minimum(n, m))
        return uniform_mean(steps, chosen)

    return Aggregator("krum", combine)
