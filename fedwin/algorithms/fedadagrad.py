"""FedAdagrad: FedAdam with the sum of squares in place of the second moment."""

from fedwin import core, local
from fedwin.algorithms.common import Server, Weighting, fedavg_with
from fedwin.algorithms.fedadam import adaptive_server
from fedwin.algorithms.registry import ALGORITHMS
from fedwin.registry.ranges import Decay, NonNegative, Positive


def adagrad_server(server_lr, b1, tau, v0=0.0) -> Server:
    """Returns FedAdagrad's server; its sum of squares is not a moment that averaging may reset.

    Args:
      b1: decay of the first moment.
      tau: added to the root.
      v0: initial sum of squares.
    """
    return adaptive_server(lambda v, d: v + d**2, server_lr, b1, tau, v0)._replace(resettable=core.nothing_resettable)


@ALGORITHMS.register("fedadagrad", like="fedadam")
def fedadagrad(
    setting: core.Setting,
    solve: local.Solver,
    *,
    server_lr: Positive = 0.1,
    b1: Decay = 0.0,
    tau: NonNegative = 1e-9,
    v0: NonNegative = 0.0,
    weighting: Weighting = "samples",
) -> core.Algorithm:
    """FedAdagrad: v <- v + d^2, x <- x + server_lr m / (sqrt(v) + tau).

    The other rules and the parameters are FedAdam's. Source: https://arxiv.org/abs/2003.00295.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("fedadagrad:server_lr=0.5")
      {'model': [5.25, 4.47, 4.027]}
    """
    return fedavg_with(adagrad_server(server_lr, b1, tau, v0), solve, weighting)
