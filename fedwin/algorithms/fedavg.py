"""Federated averaging: clients train from the server model, the server moves to their mean.

    client   y_i <- J_i steps of SGD from x
    server   x <- x + eta sum_i p_i (y_i - x)

McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data, 2017,
https://arxiv.org/abs/1602.05629.
"""

from fedwin import core, local, tree
from fedwin.algorithms import hyper
from fedwin.algorithms.registry import ALGORITHMS


def mean_delta(solve, weighting, rule=local.sgd):
    """Returns the client half that FedAvg's relatives share: train from the broadcast model, send y_i - x."""

    def client(params, c):
        y = solve(params, c, rule)
        delta = core.mean(tree.sub(y.params, params), core.weight(c, weighting))
        return core.Update({"delta": delta}, stats=y.stats, metrics=y.metrics)

    return client


def step(server_lr):
    """Returns the server half of FedAvg: x <- x + server_lr sum_i p_i (y_i - x), the state untouched."""

    def server(params, state, total, round):
        return tree.axpy(server_lr, total["delta"].value, params), state

    return server


@ALGORITHMS.register(
    "fedavg",
    paper="mcmahan2017communication",
    instances=("fedavg", "fedavg:weighting=uniform,server_lr=0.5"),
    down="1",
    up="1",
    reported="1x",
    server="1",
    client="0",
)
def fedavg(setting, solve, *, server_lr=1.0, weighting="samples"):
    """FedAvg: x <- x + server_lr sum_i p_i (y_i - x).

    Raises:
      UserError: when a hyper-parameter is out of range.

    Source: https://arxiv.org/abs/1602.05629.
    """
    hyper.common("fedavg", server_lr, weighting)
    return core.algorithm(mean_delta(solve, weighting), step(server_lr), weighting=weighting)
