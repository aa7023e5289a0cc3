"""FedCM, MoFedSAM: the last pseudo-gradient as momentum inside every local step, which is FedSAM's in MoFedSAM.

D / (lr J_i) has the units of a gradient: over a whole round the momentum moves the client by (alpha - 1) D, at learning
rate 0 too. The first round uses alpha g alone. The paper divides by the lr J of D's own round, as FedAvg-M does: if the
rate drops suddenly, the momentum here keeps its length, and fades as (1 - alpha)^t. Weight decay is not scaled by
alpha: relative to the gradient, it is 1 / alpha times FedAvg's; in the loss (--wd_in_loss) it is scaled.
"""

import jax.numpy as jnp

from fedwin import core, local, tree
from fedwin.algorithms import common
from fedwin.algorithms.fedsam import sharpness_aware
from fedwin.algorithms.registry import ALGORITHMS, facts
from fedwin.registry.ranges import NonNegative, Positive, PositiveShare


def client_momentum(alpha, d, inner: local.Rule = local.sgd) -> local.Rule:
    """Returns the local rule of FedCM and MoFedSAM, whose inner rule is by default the gradient g(y).

    direction = alpha inner + (1 - alpha) d / (lr J)
    """

    def rule(grad, s: local.Step):
        # At learning rate 0 the direction has no effect: the limit of the momentum term is a displacement.
        positive = s.lr > 0
        m = tree.scale(jnp.where(positive, 1 / (s.lr * s.steps), 0), d)
        displacement = tree.scale(jnp.where(positive, 0, (alpha - 1) / s.steps), d)
        return local.mix(alpha, m, inner)(grad, s)._replace(displacement=displacement)

    return rule


def with_client_momentum(solve, alpha, server_lr, weighting, inner: local.Rule = local.sgd) -> core.Algorithm:
    """Returns FedCM, or MoFedSAM if the inner rule is not SGD; arguments as theirs and client_momentum's."""

    def client(down, c):
        params, d = down
        y = solve(params, c, client_momentum(alpha, d, inner))
        return y.update({"delta": common.weighted_delta(y, params, c, weighting)})

    def server(params, d, total, round):
        delta = total["delta"].value  # = -Delta
        return tree.axpy(server_lr, delta, params), tree.scale(-1, delta)

    return core.algorithm(
        client, server, broadcast=lambda params, d: (params, d), init=tree.zeros_like, weighting=weighting
    )


@ALGORITHMS.register(
    "fedcm",
    paper="xu2021fedcm",
    instances=("fedcm:alpha=0.4",),
    degenerate={"alpha": 1},
    reported="1.5x",
    **facts(down="2", server="2"),
)
def fedcm(
    setting: core.Setting,
    solve: local.Solver,
    *,
    alpha: PositiveShare = 0.1,
    server_lr: Positive = 1.0,
    weighting: common.Weighting = "samples",
) -> core.Algorithm:
    """FedCM: direction alpha g(y) + (1 - alpha) D / (lr J_i).

        y <- y - lr (alpha g(y) + (1 - alpha) D / (lr J_i))
        D <- sum_i p_i (x - y_i),   x <- x - server_lr D

    Args:
      alpha: weight of the client's own gradient.

    Source: Xu et al., FedCM: Federated Learning with Client-level Momentum, 2021, https://arxiv.org/abs/2106.10874.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("fedcm:alpha=0.5")
      {'model': [4.635, 3.294, 3.008]}
    """
    return with_client_momentum(solve, alpha, server_lr, weighting)


@ALGORITHMS.register(
    "mofedsam",
    paper=("qu2022generalized", "xu2021fedcm", "foret2021sharpness"),
    instances=("mofedsam:beta=0.4",),
    degenerate={"beta": 1, "rho": 0},
    **facts(down="2", server="2"),
)
def mofedsam(
    setting: core.Setting,
    solve: local.Solver,
    *,
    rho: NonNegative = 0.1,
    beta: PositiveShare = 0.1,
    server_lr: Positive = 1.0,
    weighting: common.Weighting = "samples",
) -> core.Algorithm:
    """MoFedSAM: direction beta g(y + rho g(y) / ||g(y)||) + (1 - beta) D / (lr J_i), D the last pseudo-gradient.

        y <- y - lr (beta g(y + rho g(y) / ||g(y)||) + (1 - beta) D / (lr J_i))
        D <- sum_i p_i (x - y_i),   x <- x - server_lr D

    Args:
      beta: weight of the client's own gradient.

    Source: Qu et al., Generalized Federated Learning via Sharpness Aware Minimization, 2022,
    https://arxiv.org/abs/2206.02618.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("mofedsam:beta=0.5,rho=0")  # fedcm:alpha=0.5
      {'model': [4.635, 3.294, 3.008]}
    """
    return with_client_momentum(solve, beta, server_lr, weighting, sharpness_aware(rho))
