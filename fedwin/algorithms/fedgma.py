"""FedGMA: gradient-masked averaging, a step only where the clients' signs agree.

|S| is the number of clients that take part in the round, and Client.importance enters the mean alone.
'extra_step' reproduces released code, whose results equal FedAvg's within noise: x = sum_i p_i y_i, minus (eta_x / |S|)
times the clients' distances to it, where more than the threshold agree and the client is with the majority. (The
released code visits the clients one after another, which differs by eta_x^2.)
"""

from typing import Literal

import jax.numpy as jnp

from fedwin import core, local, tree
from fedwin.algorithms.common import Weighting
from fedwin.algorithms.registry import ALGORITHMS, facts
from fedwin.registry.ranges import NonNegative, Positive, Share

# The default threshold of every mode.
THRESHOLDS = {"soft": 0.4, "hard": 0.4, "extra_step": 0.8}


def agreement_mask(signs, count, threshold, mode="soft"):
    """Computes the mask M of `fedgma` from the sum of the signs of `count` clients."""
    # Sums of signs are integers: comparing them instead of float means is exact.
    agreed = jnp.abs(signs) >= threshold * count - 1e-4
    disagreed = jnp.abs(signs) / count if mode == "soft" else jnp.zeros_like(signs)
    return jnp.where(agreed, jnp.ones_like(signs), disagreed)


@ALGORITHMS.register(
    "fedgma",
    paper="tenison2022gradient",
    instances=("fedgma", "fedgma:threshold=0.8,mode=hard", "fedgma:mode=extra_step"),
    degenerate={"threshold": 0},
    **facts(),
)
def fedgma(
    setting: core.Setting,
    solve: local.Solver,
    *,
    threshold: Share | None = None,
    mode: Literal["soft", "hard", "extra_step"] = "soft",
    extra_lr: NonNegative = 1e-4,
    server_lr: Positive = 1.0,
    weighting: Weighting = "samples",
) -> core.Algorithm:
    """FedGMA: x <- x + server_lr M sum_i p_i (y_i - x).

        A = |sum_i sign(y_i - x)| / |S|,   M = 1 where A >= threshold, else A ('soft') or 0 ('hard')
        x <- x + server_lr M sum_i p_i (y_i - x)

    Args:
      threshold: agreement from which a coordinate is taken in full; none = 0.4, or 0.8 for 'extra_step'.
      mode: 'soft', 'hard', or 'extra_step'.
      extra_lr: eta_x of 'extra_step'.

    Source: Tenison et al., Gradient Masked Averaging for Federated Learning, 2022, https://arxiv.org/abs/2201.11986.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("fedgma")  # the two clients disagree about the sign
      {'model': [7.0, 7.0, 7.0]}
      >>> testing.run_rounds("fedgma:threshold=0") == testing.run_rounds("fedavg")
      True
    """
    threshold = THRESHOLDS[mode] if threshold is None else threshold

    def client(params, c):
        y = solve(params, c, local.sgd)
        delta = tree.sub(y.params, params)
        sums = {"signs": tree.map(jnp.sign, delta), "count": jnp.ones((), float)}
        if mode == "extra_step":
            sums["up"] = tree.map(lambda d: jnp.maximum(d, 0), delta)
            sums["down"] = tree.map(lambda d: jnp.minimum(d, 0), delta)
            sums["moving"] = tree.map(lambda d: jnp.abs(jnp.sign(d)), delta)
        return y.update(
            {"delta": core.mean_step(delta, core.aggregation_weight(c, weighting)), "sums": core.DerivedFromStep(sums)}
        )

    def masked(params, total):
        sums = total["sums"].value
        mask = tree.map(lambda s: agreement_mask(s, sums["count"], threshold, mode), sums["signs"])
        return tree.axpy(server_lr, tree.mul(mask, total["delta"].value), params)

    def with_extra_step(params, total):
        sums = total["sums"].value
        count = sums["count"]

        def leaf(x, delta, signs, up, down, moving):
            majority = jnp.where(signs > 0, (moving + signs) / 2, (moving - signs) / 2)
            distance = jnp.where(signs > 0, up, down) - majority * delta
            step = jnp.where(jnp.abs(signs) > threshold * count + 1e-4, extra_lr / count * distance, 0)
            return (x + server_lr * delta - step).astype(x.dtype)

        return tree.map(leaf, params, total["delta"].value, *(sums[name] for name in ("signs", "up", "down", "moving")))

    def server(params, state, total, round):
        return (with_extra_step if mode == "extra_step" else masked)(params, total), state

    return core.algorithm(client, server, weighting=weighting)
