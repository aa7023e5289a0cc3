"""FedExP: the server extrapolates, and does so more when the clients' steps disagree more.

With p_i = 1 / |S| (weighting=uniform) this is the paper's sum_i ||d_i||^2 / (2 |S| (||d||^2 + eps)). eta = 1 in the
paper. The iterates oscillate, so the paper evaluates the mean of the last two, which is the default here.

Differences in the released code: p_i is proportional to N_i, as here with weighting=samples; |S| eps takes the place of
eps; and eps shrinks with the square of the decaying client learning rate, while it is constant here.
"""

from typing import Literal

import jax.numpy as jnp

from fedwin import core, local, tree
from fedwin.algorithms.common import Weighting
from fedwin.algorithms.registry import ALGORITHMS, facts
from fedwin.registry.ranges import Positive


@ALGORITHMS.register("fedexp", paper="jhunjhunwala2023fedexp", **facts(server="2"))
def fedexp(
    setting: core.Setting,
    solve: local.Solver,
    *,
    eps: Positive = 1e-3,
    server_lr: Positive = 1.0,
    weighting: Weighting = "samples",
    eval_model: Literal["mean", "server"] = "mean",
) -> core.Algorithm:
    """FedExP: x <- x + server_lr max(1, sum_i p_i ||d_i||^2 / (2 ||d||^2 + 2 eps)) d, d = sum_i p_i (y_i - x).

        d_i = y_i - x,   d = sum_i p_i d_i
        x <- x + server_lr max(1, sum_i p_i ||d_i||^2 / (2 (||d||^2 + eps))) d

    Args:
      eps: bounds the extrapolation where the steps cancel, in units of ||d||^2.
      eval_model: 'mean' evaluates (x^t + x^{t-1}) / 2, 'server' x^t.

    Source: Jhunjhunwala et al., FedExP: Speeding Up Federated Averaging via Extrapolation, 2023,
    https://arxiv.org/abs/2301.09604.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("fedexp:eps=0.5")
      {'model': [5.175, 3.49, 3.159]}
    """
    averages = eval_model == "mean"

    def client(params, c):
        y = solve(params, c)
        delta = tree.sub(y.params, params)
        weight = core.aggregation_weight(c, weighting)
        squared = core.DerivedFromStep(core.mean(tree.squared_norm(delta), weight))
        return y.update({"delta": core.mean_step(delta, weight), "squared_norm": squared})

    def server(params, state, total, round):
        delta = total["delta"].value
        ratio = total["squared_norm"].value.value / (2 * (tree.squared_norm(delta) + eps))
        return tree.axpy(server_lr * jnp.maximum(1, ratio), delta, params), params if averages else state

    def evaluated(model, before):
        return model._replace(params=tree.lerp(0.5, model.params, before)) if averages else model

    return core.algorithm(
        client,
        server,
        init=lambda params: params if averages else (),  # the model of the round before
        eval_model=evaluated,
        weighting=weighting,
    )
