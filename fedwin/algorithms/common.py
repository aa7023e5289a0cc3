"""The registry of algorithms, and what most of them share: FedAvg's client and server functions."""

from collections.abc import Callable
from typing import Literal

from fedwin import core, local, tree
from fedwin.registry import Registry

# Facts of an algorithm:
#   down, up: models that one client receives and sends in one round, with extra numbers and options in words, such as
#     '2 (3 with momentum)' or '1 + C d numbers';
#   reported: communication overhead as printed in the GHB paper;
#   server, client: models that each of them stores between rounds;
#   degenerate: hyper-parameters under which the method is FedAvg (None: there are none);
#   warmup_horizon: the parameter that holds the number of rounds before the method differs from FedAvg.
ALGORITHMS = Registry(
    "algorithm",
    columns={"down / up": "{down} / {up}", "reported": "{reported}", "server / client keep": "{server} / {client}"},
    rule="rule",
    common={
        "server_lr": "server learning rate eta.",
        "weighting": "p_i proportional to N_i ('samples') or equal ('uniform').",
    },
    down="?",
    up="?",
    reported="-",
    server="?",
    client="?",
    degenerate=None,
    warmup_horizon="",
)


# Weights p_i of the clients: their share of the cohort's examples, or equal ones.
Weighting = Literal["samples", "uniform"]


def weighted_delta(y: local.Local, params, c: core.Client, weighting: str) -> core.MeanStep:
    """Returns a client's step y_i - x, weighted, as its term of the cohort's mean."""
    return core.mean_step(tree.sub(y.params, params), core.aggregation_weight(c, weighting))


def fedavg_client(solve: local.Solver, weighting: str, rule: local.Rule = local.sgd) -> Callable:
    """Returns FedAvg's client function, which trains from the broadcast model and sends {'delta': y_i - x}."""

    def client(params, c):
        y = solve(params, c, rule)
        return y.update({"delta": weighted_delta(y, params, c, weighting)})

    return client


def add_mean_step(params, total, server_lr):
    """Computes x + server_lr sum_i p_i (y_i - x), with the mean step under 'delta'."""
    return tree.axpy(server_lr, total["delta"].value, params)


def fedavg_server(server_lr: float) -> Callable:
    """Returns FedAvg's server function, x <- x + server_lr sum_i p_i (y_i - x); the server state stays as it is."""

    def server(params, state, total, round):
        return add_mean_step(params, total, server_lr), state

    return server
