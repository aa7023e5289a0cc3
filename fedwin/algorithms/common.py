"""Pieces that most algorithms share: FedAvg's client and server functions, and FedAvg with another server."""

from collections.abc import Callable
from typing import Literal, NamedTuple

from fedwin import core, local, tree

# Weights p_i of the clients: their share of the cohort's examples, or equal ones.
Weighting = Literal["samples", "uniform"]


def weighted_delta(y: local.Local, params, c: core.Client, weighting: str) -> core.MeanStep:
    """Returns a client's step y_i - x, weighted, as its term of the cohort's mean."""
    return core.mean_step(tree.sub(y.params, params), core.aggregation_weight(c, weighting))


def fedavg_client(solve: local.Solver, weighting: str, rule: local.Rule = local.sgd, **options) -> Callable:
    """Returns FedAvg's client function, (params, Client) -> Update, with a local rule and options of local.Solver.

    It trains from the broadcast model and sends {'delta': y_i - x}.
    """

    def client(params, c):
        y = solve(params, c, rule, **options)
        return y.update({"delta": weighted_delta(y, params, c, weighting)})

    return client


def add_mean_step(params, total, server_lr):
    """Computes x + server_lr sum_i p_i (y_i - x) from the sum of the clients' messages, whose mean step is 'delta'."""
    return tree.axpy(server_lr, total["delta"].value, params)


def fedavg_server(server_lr: float) -> Callable:
    """Returns FedAvg's server function, x <- x + server_lr sum_i p_i (y_i - x); the server state does not change."""

    def server(params, state, total, round):
        return add_mean_step(params, total, server_lr), state

    return server


class Server(NamedTuple):
    """The server of an algorithm that receives the clients' mean step.

    Attributes:
      init: params -> state.
      step: (params, state, total, round) -> (params, state).
      resettable: node of the state -> whether it holds moments that averaging may reset (core.Algorithm).
    """

    init: Callable
    step: Callable
    resettable: Callable[[object], bool] = core.nothing_resettable


def fedavg_with(server: Server, solve: local.Solver, weighting: str, keeps_optimizer: bool = False) -> core.Algorithm:
    """Returns FedAvg with another server, whose clients may keep the state of their optimizer between rounds."""

    def client(params, c):
        y = solve(params, c, optimizer=c.state)
        return y.update({"delta": weighted_delta(y, params, c, weighting)}, state=y.optimizer)

    return core.algorithm(
        client if keeps_optimizer else fedavg_client(solve, weighting),
        server.step,
        init=server.init,
        client_init=lambda params, id: solve.optimizer.init(params) if keeps_optimizer else (),
        weighting=weighting,
        resettable=server.resettable,
    )
