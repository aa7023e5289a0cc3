"""Federated averaging: clients train from the server model, the server moves to their mean."""

from fedwin import core, local
from fedwin.algorithms import common
from fedwin.algorithms.registry import ALGORITHMS, facts
from fedwin.registry.ranges import Positive


@ALGORITHMS.register(
    "fedavg",
    paper="mcmahan2017communication",
    instances=("fedavg", "fedavg:weighting=uniform,server_lr=0.5"),
    reported="1x",
    asynchronous=True,
    **facts(),
)
def fedavg(
    setting: core.Setting, solve: local.Solver, *, server_lr: Positive = 1.0, weighting: common.Weighting = "samples"
) -> core.Algorithm:
    """FedAvg: x <- x + server_lr sum_i p_i (y_i - x).

        y_i <- J_i steps of SGD from x
        x   <- x + server_lr sum_i p_i (y_i - x)

    Source: McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data, 2017,
    https://arxiv.org/abs/1602.05629.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("fedavg")
      {'model': [3.916, 3.315, 3.169]}
    """
    return core.algorithm(common.fedavg_client(solve, weighting), common.fedavg_server(server_lr), weighting=weighting)
