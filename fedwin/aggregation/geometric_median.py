"""Geometric median of the clients' steps, by the smoothed Weiszfeld algorithm (RFA)."""

import jax.numpy as jnp
from jax import lax

from fedwin import core
from fedwin.aggregation.aggregator import AGGREGATORS, Aggregator
from fedwin.registry.ranges import Positive, PositiveInt


@AGGREGATORS.register("geometric_median", paper="pillutla2022robust")
def geometric_median(setting: core.Setting, *, iterations: PositiveInt = 10, smoothing: Positive = 1e-6) -> Aggregator:
    """Geometric median: the v that minimizes sum_i p_i ||v - (y_i - x)||, by Weiszfeld iterations from v = 0.

        b_i = p_i / max(smoothing, ||v - d_i||),   v <- sum_i b_i d_i / sum_i b_i,   d_i = y_i - x

    The weights p_i are the algorithm's, as in the paper. v = 0 is the server's model; the paper starts from the mean,
    which an attacker moves anywhere. A step that is not finite does not count.

    Args:
      iterations: number of Weiszfeld iterations.
      smoothing: nu, smallest distance that is divided by.

    Source: Pillutla et al., Robust Aggregation for Federated Learning, 2022, https://arxiv.org/abs/1912.13445.

    Example:
      >>> from fedwin import testing
      >>> p = testing.quadratic([1, 1, 1], [0, 1, 50], [2.0], steps=5, lr=0.1, schedule=((0, 1, 2),))
      >>> testing.run_rounds("fedavg", aggregate="geometric_median", problem=p)  # in one dimension, the median
      {'model': [391.06, 394.815, 397.06]}
    """

    def combine(steps, weights, present):
        counted = present & jnp.all(jnp.isfinite(steps), 1)
        steps = jnp.where(counted[:, None], steps, 0)
        weights = jnp.where(counted, weights, 0)

        def iterate(_, v):
            distances = jnp.sqrt(jnp.sum(jnp.square(steps - v), 1))
            b = weights / jnp.maximum(smoothing, distances)
            return jnp.matmul(b, steps, precision="highest") / jnp.maximum(jnp.sum(b), jnp.finfo(b.dtype).tiny)

        return lax.fori_loop(0, iterations, iterate, jnp.zeros_like(steps[0]))

    return Aggregator("geometric_median", combine)
