"""FedCM: the last pseudo-gradient, as momentum inside every local step.

    client   y <- y - lr (alpha g(y) + (1 - alpha) D / (lr J_i))
    server   D <- Delta = sum_i p_i (x - y_i),   x <- x - eta Delta     D^0 = 0

D / (lr J_i) is in units of a gradient: a whole round of the receiving client moves by (1 - alpha) D, at rate 0 too. The
first round uses alpha g alone.

Xu et al., FedCM: Federated Learning with Client-level Momentum, 2021, https://arxiv.org/abs/2106.10874.
"""

import jax.numpy as jnp

from fedwin import core, local, tree
from fedwin.algorithms import common
from fedwin.algorithms.registry import ALGORITHMS
from fedwin.registry import checks


def client_momentum(alpha, d):
    """direction = alpha g(y) + (1 - alpha) d / (lr J)."""

    def rule(grad, s: local.Step):
        # At rate 0 nothing inside the rate moves: the limit of the step is a displacement.
        moves = s.lr > 0
        m = tree.scale(jnp.where(moves, 1 / (s.lr * s.steps), 0), d)
        limit = tree.scale(jnp.where(moves, 0, (alpha - 1) / s.steps), d)
        return local.mix(alpha, m)(grad, s)._replace(displacement=limit)

    return rule


@ALGORITHMS.register(
    "fedcm",
    paper="xu2021fedcm",
    instances=("fedcm:alpha=0.4",),
    degenerate={"alpha": 1},
    down="2",
    up="1",
    reported="1.5x",
    server="2",
    client="0",
)
def fedcm(setting, solve, *, alpha=0.1, server_lr=1.0, weighting="samples"):
    """FedCM: direction alpha g(y) + (1 - alpha) D / (lr J_i).

    Args:
      alpha: weight of the client's own gradient.

    Raises:
      UserError: when a hyper-parameter is out of range.

    Source: https://arxiv.org/abs/2106.10874.
    """
    common.check("fedcm", server_lr, weighting)
    checks.number("fedcm", 0, 1, open_least=True, alpha=alpha)

    def client(down, c):
        params, d = down
        y = solve(params, c, client_momentum(alpha, d))
        return y.update({"delta": common.mean_step(y, params, c, weighting)})

    def server(params, d, total, round):
        delta = total["delta"].value  # = -Delta
        return tree.axpy(server_lr, delta, params), tree.scale(-1, delta)

    return core.algorithm(
        client, server, broadcast=lambda params, d: (params, d), init=tree.zeros_like, weighting=weighting
    )
