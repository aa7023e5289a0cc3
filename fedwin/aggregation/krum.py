"""Krum and multi-Krum: the steps of the clients that are closest to their nearest neighbors."""

import jax.numpy as jnp

from fedwin import core
from fedwin.aggregation.aggregator import AGGREGATORS, Aggregator, uniform_mean
from fedwin.errors import UserError
from fedwin.registry.ranges import NonNegativeInt, PositiveInt


def squared_distances(steps):
    """Computes ||d_i - d_j||^2 for all pairs of vectors, from their products.

    Args:
      steps: d_i, [C, d].

    Returns:
      [C, C], symmetric to the bit; NaN or inf for a vector that is not finite.

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

    m = 1 is Krum, a larger m multi-Krum. Every client counts equally, whatever the algorithm's weights are. Of equal
    scores, that of the client drawn first is the lower one. n is the number of clients that are present: where it is
    less than f + 3, one neighbor counts, and where it is less than m, all clients are chosen.

    Args:
      f: attackers of a cohort that are tolerated; a cohort needs 2 f + 3 clients.
      m: number of steps that are averaged, from 1 to clients_per_round - f.

    Raises:
      UserError: when cohorts are smaller than 2 f + 3, or m is larger than clients_per_round - f.

    Source: Blanchard et al., Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent, 2017,
    https://arxiv.org/abs/1703.02757.

    Example:
      >>> from fedwin import testing
      >>> p = testing.quadratic([1] * 5, [0, 1, 1, 2, 50], [2.0], steps=5, lr=0.1, schedule=(range(5),))
      >>> testing.run_rounds("fedavg", aggregate="krum:f=1", problem=p)  # towards one of the two clients at 1
      {'model': [234.688, 236.944, 238.303]}
    """
    cohort = setting.clients_per_round
    if cohort < 2 * f + 3:
        raise UserError(
            f"krum: f={f} needs cohorts of at least 2 f + 3 = {2 * f + 3} clients; raise "
            f"--clients_per_round={cohort}, or lower f."
        )
    if m > cohort - f:
        raise UserError(f"krum: m={m} must be at most clients_per_round - f = {cohort - f}.")

    def combine(steps, weights, present):
        n, size = jnp.sum(present), len(steps)
        pairs = present[:, None] & present & ~jnp.eye(size, dtype=bool)
        distances = squared_distances(jnp.where(present[:, None], steps, jnp.nan))
        # NaN is sorted to the end, as inf is: a client that sends it has no near neighbors.
        nearest = jnp.sort(jnp.where(pairs, distances, jnp.inf), 1)
        counted = jnp.arange(size) < jnp.maximum(n - f - 2, 1)
        scores = jnp.sum(jnp.where(counted, nearest, 0), 1)
        # Clients that are present come first, even with an infinite score; then by score, then by place.
        order = jnp.lexsort((scores, ~present))
        number = jnp.minimum(n, m)
        chosen = jnp.zeros((size, 1), bool).at[order, 0].set(jnp.arange(size) < number)
        return uniform_mean(steps, chosen)

    return Aggregator("krum", combine)
