"""Federated averaging: clients train from the server model, the server moves to their mean.

    client   y_i <- J_i steps of SGD from x
    server   x <- x + eta sum_i p_i (y_i - x)

McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data, 2017,
https://arxiv.org/abs/1602.05629.
"""

from fedwin import core, local, tree
from fedwin.algorithms import hyper


def mean_delta(train, weighting, rule=local.sgd):
    """Returns the client half that FedAvg's relatives share: train from the broadcast model, send y_i - x."""

    def client(params, c):
        y = train(params, c, rule)
        delta = core.mean(tree.sub(y.params, params), core.weight(c, weighting))
        return core.Update({"delta": delta}, stats=y.stats, metrics=y.metrics)

    return client


def step(server_lr):
    """Returns the server half of FedAvg: x <- x + server_lr sum_i p_i (y_i - x), the state untouched."""

    def server(params, state, total, round):
        return tree.axpy(server_lr, total["delta"].value, params), state

    return server


def fedavg(setting, train, *, server_lr=1.0, weighting="samples"):
    """FedAvg: x <- x + server_lr sum_i p_i (y_i - x).

    Args:
      server_lr: server learning rate eta.
      weighting: p_i proportional to N_i ('samples') or equal ('uniform').

    Raises UserError for a hyper-parameter out of range. https://arxiv.org/abs/1602.05629.
    """
    hyper.common("fedavg", server_lr, weighting)
    return core.algorithm(mean_delta(train, weighting), step(server_lr), weighting=weighting)
