"""FedADC: server momentum that clients apply in their local steps.

At learning rate 0 nothing moves and m stays. With beta_local = beta_global (the default), server_lr = 1 and a constant
rate this is GHB with tau = 1; beta_local = 1 is the form that the GHB paper gives as the original one.
"""

import jax.numpy as jnp

from fedwin import core, local, tree
from fedwin.algorithms import common
from fedwin.algorithms.registry import ALGORITHMS, facts
from fedwin.registry.ranges import Positive, Share


@ALGORITHMS.register(
    "fedadc",
    paper="ozfatura2021fedadc",
    instances=("fedadc:beta_global=0.6", "fedadc:beta_global=0.6,beta_local=1.0"),
    degenerate={"beta_global": 0, "beta_local": 0},
    reported="1.5x",
    **facts(down="2", server="2"),
)
def fedadc(
    setting: core.Setting,
    solve: local.Solver,
    *,
    beta_global: Share = 0.9,
    beta_local: Share | None = None,
    server_lr: Positive = 1.0,
    weighting: common.Weighting = "samples",
) -> core.Algorithm:
    """FedADC: direction g(y) + (beta_local / J_i) m.

        y <- y - lr (g(y) + (beta_local / J_i) m)
        m <- Delta / lr + (beta_global - beta_local) m,   x <- x - server_lr lr m,   Delta = sum_i p_i (x - y_i)

    Args:
      beta_global: momentum of the server.
      beta_local: momentum in the clients' steps; none = beta_global, 1 = the form in the GHB paper's Table 1.

    Source: Ozfatura et al., FedADC: Accelerated Federated Learning with Drift Control, 2021,
    https://arxiv.org/abs/2012.09102.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("fedadc:beta_global=0.5")
      {'model': [3.916, 3.041, 3.0]}
    """
    beta_local = beta_global if beta_local is None else beta_local

    def client(down, c):
        params, m = down
        y = solve(params, c, local.shift(lambda s: tree.scale(beta_local / s.steps, m)))
        return y.update({"delta": common.weighted_delta(y, params, c, weighting)})

    def server(params, m, total, round):
        lr = solve.rate(round)
        positive = lr > 0
        gradient = tree.scale(jnp.where(positive, -1 / lr, 0), total["delta"].value)
        m = tree.axpy(jnp.where(positive, beta_global - beta_local, 1), m, gradient)
        return tree.axpy(-server_lr * lr, m, params), m

    return core.algorithm(
        client, server, broadcast=lambda params, m: (params, m), init=tree.zeros_like, weighting=weighting
    )
