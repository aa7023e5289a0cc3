"""FedAvgM: the server's step has momentum, without a factor (1 - beta)."""

from fedwin import core, local, tree
from fedwin.algorithms.common import Server, Weighting, fedavg_with
from fedwin.algorithms.registry import ALGORITHMS, facts
from fedwin.registry.ranges import Decay, Positive


@ALGORITHMS.register(
    "fedavgm",
    paper="hsu2019measuring",
    instances=("fedavgm:beta=0.5",),
    degenerate={"beta": 0},
    reported="1x",
    asynchronous=True,
    **facts(server="2"),
)
def fedavgm(
    setting: core.Setting,
    solve: local.Solver,
    *,
    beta: Decay = 0.9,
    server_lr: Positive = 1.0,
    nesterov: bool = False,
    weighting: Weighting = "samples",
) -> core.Algorithm:
    """FedAvgM: v <- beta v + Delta, x <- x - server_lr v; Delta the pseudo-gradient sum_i p_i (x - y_i).

    Args:
      beta: server momentum.
      nesterov: step by Delta + beta v instead of v.

    Source: Hsu et al., Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification,
    2019, https://arxiv.org/abs/1909.06335.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("fedavgm:beta=0.5")
      {'model': [3.916, 3.002, 3.06]}
    """

    def step(params, v, total, round):
        delta = total["delta"].value  # = -Delta
        v = tree.axpy(beta, v, delta)
        return tree.axpy(server_lr, tree.axpy(beta, v, delta) if nesterov else v, params), v

    return fedavg_with(Server(tree.zeros_like, step), solve, weighting)
