"""MoFedSAM: FedSAM with the last pseudo-gradient as momentum inside every local step, as in FedCM."""

from fedwin import core, local
from fedwin.algorithms.common import Weighting
from fedwin.algorithms.fedcm import with_client_momentum
from fedwin.algorithms.fedsam import sharpness_aware
from fedwin.algorithms.registry import ALGORITHMS
from fedwin.registry.ranges import NonNegative, Positive, PositiveShare


@ALGORITHMS.register(
    "mofedsam",
    paper=("qu2022generalized", "xu2021fedcm", "foret2021sharpness"),
    instances=("mofedsam:beta=0.4",),
    degenerate={"beta": 1, "rho": 0},
    down="2",
    up="1",
    server="2",
    client="0",
    status="checked",
)
def mofedsam(
    setting: core.Setting,
    solve: local.Solver,
    *,
    rho: NonNegative = 0.1,
    beta: PositiveShare = 0.1,
    server_lr: Positive = 1.0,
    weighting: Weighting = "samples",
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
