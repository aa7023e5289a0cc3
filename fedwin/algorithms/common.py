"""What most algorithms share: the hyper-parameters that all have, and the two halves of FedAvg."""

from fedwin import core, local, tree
from fedwin.registry import checks


def check(owner: str, server_lr, weighting) -> None:
    """Checks the two hyper-parameters that every algorithm has; raises UserError."""
    checks.number(owner, 0, open_least=True, server_lr=server_lr)
    checks.one_of(owner, "weighting", weighting, ("samples", "uniform"))


def mean_step(y: local.Local, params, c: core.Client, weighting: str) -> core.MeanStep:
    """Returns a client's y_i - x as its part of the cohort's mean step."""
    return core.mean_step(tree.sub(y.params, params), core.weight(c, weighting))


def fedavg_client(solve, weighting: str, rule=local.sgd):
    """Returns FedAvg's client half: train from the broadcast model, send y_i - x."""

    def client(params, c):
        y = solve(params, c, rule)
        return y.update({"delta": mean_step(y, params, c, weighting)})

    return client


def add_mean_step(params, total, server_lr):
    """Returns x + server_lr sum_i p_i (y_i - x)."""
    return tree.axpy(server_lr, total["delta"].value, params)


def fedavg_server(server_lr):
    """Returns FedAvg's server half: x <- x + server_lr sum_i p_i (y_i - x), the state untouched."""

    def server(params, state, total, round):
        return add_mean_step(params, total, server_lr), state

    return server
