"""FedAvg-M, SCAFFOLD-M: the last round's mean gradient as momentum inside every local step.

m is a gradient: the mean displacement per unit of learning rate. The paper has the same number J of local steps on all
clients and its own step size, gamma = eta lr J. At equal J_i and a constant rate, FedAvg-M is FedCM with alpha = beta,
including its weight decay. A round at learning rate 0 leaves m unchanged. FedAvgM has momentum on the server instead.

The paper's analysis of SCAFFOLD-M starts c_i at a mini-batch gradient at x^0, which needs all clients; here c_i = 0, as
in SCAFFOLD.
"""

from typing import NamedTuple

import jax.numpy as jnp

from fedwin import core, local, rules, tree
from fedwin.algorithms import common
from fedwin.algorithms.registry import ALGORITHMS, facts
from fedwin.registry.ranges import Positive, PositiveShare
from fedwin.tree import PyTree


def step_with_length(y: local.Local, params, c: core.Client, weighting: str) -> dict:
    """Returns a client's step and its length, the sum of the learning rates of its local steps, as terms of means.

        delta = y_i - x,   length = lr J_i

    Returns:
      {'delta': core.MeanStep, 'length': core.Mean}.
    """
    length = core.mean(y.lr * y.steps, core.aggregation_weight(c, weighting))
    return {"delta": common.weighted_delta(y, params, c, weighting), "length": length}


def mean_gradient(total, before):
    """Computes the clients' mean displacement per unit of learning rate, or `before` at learning rate 0.

        m = sum_i p_i (x - y_i) / sum_i p_i lr J_i

    The total is that of messages of `step_with_length`.
    """
    length = total["length"].value
    positive = length > 0
    gradient = tree.scale(-1 / jnp.where(positive, length, 1), total["delta"].value)
    return tree.where(positive, gradient, before)


@ALGORITHMS.register(
    "fedavg_m",
    paper="cheng2024momentum",
    instances=("fedavg_m:beta=0.4",),
    degenerate={"beta": 1},
    **facts(down="2", up="1 + 1 number", server="2"),
)
def fedavg_m(
    setting: core.Setting,
    solve: local.Solver,
    *,
    beta: PositiveShare = 0.1,
    server_lr: Positive = 1.0,
    weighting: common.Weighting = "samples",
) -> core.Algorithm:
    """FedAvg-M: direction beta g(y) + (1 - beta) m, m the last round's mean gradient.

        y <- y - lr (beta g(y) + (1 - beta) m)
        m <- sum_i p_i (x - y_i) / sum_i p_i lr J_i,   x <- x + server_lr sum_i p_i (y_i - x)

    Args:
      beta: weight of the client's own gradient.
      server_lr: server learning rate eta; the paper's gamma is eta lr J.

    Source: Cheng et al., Momentum Benefits Non-IID Federated Learning Simply and Provably, 2024,
    https://arxiv.org/abs/2306.16504.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("fedavg_m:beta=0.5")  # fedcm:alpha=0.5, as both clients take five steps
      {'model': [4.635, 3.294, 3.008]}
    """

    def client(down, c):
        params, m = down
        y = solve(params, c, local.mix(beta, m))
        return y.update(step_with_length(y, params, c, weighting))

    def server(params, m, total, round):
        return common.add_mean_step(params, total, server_lr), mean_gradient(total, m)

    return core.algorithm(
        client, server, broadcast=lambda params, m: (params, m), init=tree.zeros_like, weighting=weighting
    )


class ScaffoldMState(NamedTuple):
    """State of SCAFFOLD-M's server.

    Attributes:
      control: c, mean of all clients' controls, like params.
      momentum: m, the last round's mean gradient, like params.
    """

    control: PyTree
    momentum: PyTree


def corrected(beta, control, shift) -> local.Rule:
    """Returns the local rule of SCAFFOLD-M.

    direction = beta (g(y) - control) + shift,   control = c_i,   shift = beta c + (1 - beta) m
    """

    def rule(grad: rules.GradientFn, s: rules.Step) -> rules.RuleOutput:
        g = grad(s.params)
        return rules.RuleOutput(tree.axpy(beta, tree.sub(g.value, control), shift), None, g)

    return rule


@ALGORITHMS.register(
    "scaffold_m",
    like="fedavg_m",
    instances=("scaffold_m:beta=0.4",),
    degenerate=None,
    up="2 + 1 number",
    server="3",
    client="1",
)
def scaffold_m(
    setting: core.Setting,
    solve: local.Solver,
    *,
    beta: PositiveShare = 0.1,
    server_lr: Positive = 1.0,
    weighting: common.Weighting = "samples",
) -> core.Algorithm:
    """SCAFFOLD-M: direction beta (g(y) - c_i + c) + (1 - beta) m, m the last round's mean gradient.

        y <- y - lr (beta (g(y) - c_i + c) + (1 - beta) m),   c_i+ = mean_j g(y_j)
        m <- sum_i p_i (x - y_i) / sum_i p_i lr J_i,   x <- x + server_lr sum_i p_i (y_i - x)
        c <- c + (1/K) sum_{i in S} (c_i+ - c_i)

    Args:
      beta: weight of the client's own gradient; 1 is SCAFFOLD.

    Source: https://arxiv.org/abs/2306.16504.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("scaffold_m:beta=0.5")["model"]
      [4.635, 3.217, 3.005]
    """

    def client(down, c):
        params, shift = down
        y = solve(params, c, corrected(beta, c.state, shift), grad=True)
        message = step_with_length(y, params, c, weighting)
        message["drift"] = tree.scale(1 / setting.num_clients, tree.sub(y.grad, c.state))
        return y.update(message, state=y.grad)

    def server(params, state, total, round):
        control = tree.add(state.control, total["drift"])
        m = mean_gradient(total, state.momentum)
        return common.add_mean_step(params, total, server_lr), ScaffoldMState(control, m)

    return core.algorithm(
        client,
        server,
        broadcast=lambda params, state: (params, tree.lerp(1 - beta, state.control, state.momentum)),
        init=lambda params: ScaffoldMState(tree.zeros_like(params), tree.zeros_like(params)),
        client_init=lambda params, id: tree.zeros_like(params),
        weighting=weighting,
    )
