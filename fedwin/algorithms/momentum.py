"""FedCM, FedAvg-M, SCAFFOLD-M, FedADC, FedACG and local momentum: momentum inside of local steps, or ahead of them.

FedCM: D / (lr J_i) has the units of a gradient: over a whole round the momentum moves the client by (1 - alpha) D, at
learning rate 0 too. The first round uses alpha g alone.

FedAvg-M: m is the mean displacement per unit of learning rate. The paper has the same number J of local steps on all
clients and a step of its own, gamma = eta lr J. At equal J_i and a constant rate, FedAvg-M is FedCM with alpha = beta;
in general FedCM divides the last displacement by the client's own lr J_i of the present round. A round at learning rate
0 leaves m as it is. The name is not FedAvgM's, whose momentum is the server's. SCAFFOLD-M starts at c_i = 0, as
SCAFFOLD does; the paper's analysis starts at a mini-batch gradient at x^0, which takes all clients.

FedADC: at learning rate 0 nothing moves and m stays. With beta_local = beta_global this is GHB with tau = 1.
"""

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp
import optax

from fedwin import core, local, rules, tree
from fedwin.algorithms.common import ALGORITHMS, Weighting, add_mean_step, fedavg_server, weighted_delta
from fedwin.registry.ranges import Decay, NonNegative, Positive, PositiveShare, Share
from fedwin.tree import PyTree


def client_momentum(alpha, d):
    """Returns the local rule of FedCM; d is the last round's pseudo-gradient D.

    direction = alpha g(y) + (1 - alpha) d / (lr J)
    """

    def rule(grad, s: local.Step):
        # At learning rate 0 the direction has no effect: the limit of the momentum term is a displacement.
        positive = s.lr > 0
        m = tree.scale(jnp.where(positive, 1 / (s.lr * s.steps), 0), d)
        displacement = tree.scale(jnp.where(positive, 0, (alpha - 1) / s.steps), d)
        return local.mix(alpha, m)(grad, s)._replace(displacement=displacement)

    return rule


@ALGORITHMS.register(
    "fedcm",
    paper="xu2021fedcm",
    instances=("fedcm:alpha=0.4",),
    degenerate={"alpha": 1},
    down="2",
    up="1",
    reported="1.5x",
    server="2",
    client="0",
)
def fedcm(
    setting: core.Setting,
    solve: local.Solver,
    *,
    alpha: PositiveShare = 0.1,
    server_lr: Positive = 1.0,
    weighting: Weighting = "samples",
) -> core.Algorithm:
    """FedCM: direction alpha g(y) + (1 - alpha) D / (lr J_i).

        y <- y - lr (alpha g(y) + (1 - alpha) D / (lr J_i))
        D <- sum_i p_i (x - y_i),   x <- x - server_lr D

    Args:
      alpha: weight of the client's own gradient.

    Source: Xu et al., FedCM: Federated Learning with Client-level Momentum, 2021, https://arxiv.org/abs/2106.10874.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("fedcm:alpha=0.5")
      {'model': [4.635, 3.294, 3.008]}
    """

    def client(down, c):
        params, d = down
        y = solve(params, c, client_momentum(alpha, d))
        return y.update({"delta": weighted_delta(y, params, c, weighting)})

    def server(params, d, total, round):
        delta = total["delta"].value  # = -Delta
        return tree.axpy(server_lr, delta, params), tree.scale(-1, delta)

    return core.algorithm(
        client, server, broadcast=lambda params, d: (params, d), init=tree.zeros_like, weighting=weighting
    )


def step_with_length(y: local.Local, params, c: core.Client, weighting: str) -> dict:
    """Returns a client's step and its length, the sum of the learning rates of its local steps, as terms of means.

    delta = y_i - x,   length = lr J_i
    """
    length = core.mean(y.lr * y.steps, core.aggregation_weight(c, weighting))
    return {"delta": weighted_delta(y, params, c, weighting), "length": length}


def mean_gradient(total, before):
    """Computes the clients' mean displacement per unit of learning rate.

        m = sum_i p_i (x - y_i) / sum_i p_i lr J_i

    Args:
      before: m of the last round, the result at learning rate 0, like params.
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
    down="2",
    up="1 + 1 number",
    server="2",
    client="0",
)
def fedavg_m(
    setting: core.Setting,
    solve: local.Solver,
    *,
    beta: PositiveShare = 0.1,
    server_lr: Positive = 1.0,
    weighting: Weighting = "samples",
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
        return add_mean_step(params, total, server_lr), mean_gradient(total, m)

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

    direction = beta (g(y) - c_i) + shift,   shift = beta c + (1 - beta) m
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
    weighting: Weighting = "samples",
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
        return add_mean_step(params, total, server_lr), ScaffoldMState(control, m)

    return core.algorithm(
        client,
        server,
        broadcast=lambda params, state: (params, tree.lerp(1 - beta, state.control, state.momentum)),
        init=lambda params: ScaffoldMState(tree.zeros_like(params), tree.zeros_like(params)),
        client_init=lambda params, id: tree.zeros_like(params),
        weighting=weighting,
    )


@ALGORITHMS.register(
    "fedadc",
    paper="ozfatura2021fedadc",
    instances=("fedadc:beta_global=0.6", "fedadc:beta_global=0.6,beta_local=1.0"),
    degenerate={"beta_global": 0, "beta_local": 0},
    down="2",
    up="1",
    reported="1.5x",
    server="2",
    client="0",
)
def fedadc(
    setting: core.Setting,
    solve: local.Solver,
    *,
    beta_global: Share = 0.9,
    beta_local: Share | None = None,
    server_lr: Positive = 1.0,
    weighting: Weighting = "samples",
) -> core.Algorithm:
    """FedADC: direction g(y) + (beta_local / J_i) m.

        y <- y - lr (g(y) + (beta_local / J_i) m)
        m <- Delta / lr + (beta_global - beta_local) m,   x <- x - server_lr lr m,   Delta = sum_i p_i (x - y_i)

    Args:
      beta_global: momentum of the server.
      beta_local: momentum in the clients' steps; none = beta_global, 1 = the form of the original paper.

    Source: Ozfatura et al., FedADC: Accelerated Federated Learning with Drift Control, 2021,
    https://arxiv.org/abs/2012.09102.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("fedadc:beta_global=0.5")
      {'model': [3.916, 3.041, 3.0]}
    """
    beta_local = beta_global if beta_local is None else beta_local

    def client(down, c):
        params, m = down
        y = solve(params, c, local.shift(lambda s: tree.scale(beta_local / s.steps, m)))
        return y.update({"delta": weighted_delta(y, params, c, weighting)})

    def server(params, m, total, round):
        lr = solve.rate(round)
        positive = lr > 0
        gradient = tree.scale(jnp.where(positive, -1 / lr, 0), total["delta"].value)
        m = tree.axpy(jnp.where(positive, beta_global - beta_local, 1), m, gradient)
        return tree.axpy(-server_lr * lr, m, params), m

    return core.algorithm(
        client, server, broadcast=lambda params, m: (params, m), init=tree.zeros_like, weighting=weighting
    )


@ALGORITHMS.register(
    "fedacg",
    paper="kim2024communication",
    instances=("fedacg:lam=0.5",),
    degenerate={"lam": 0, "beta": 0},
    down="1",
    up="1",
    server="2",
    client="0",
)
def fedacg(
    setting: core.Setting,
    solve: local.Solver,
    *,
    lam: Decay = 0.85,
    beta: NonNegative = 0.01,
    server_lr: Positive = 1.0,
    weighting: Weighting = "samples",
) -> core.Algorithm:
    """FedACG: direction g(y) + beta (y - z) from z = x + lam m.

        y <- y - lr (g(y) + beta (y - z)),   z = x + lam m
        m <- lam m + server_lr sum_i p_i (y_i - z),   x <- x + m

    Args:
      lam: momentum of the server and length of the look-ahead.
      beta: strength of the pull towards z, on f_i + beta/2 ||y - z||^2.

    Source: Kim et al., Communication-Efficient Federated Learning with Accelerated Client Gradient, 2024,
    https://arxiv.org/abs/2201.03172.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("fedacg:lam=0.5")
      {'model': [3.919, 3.133, 3.05]}
    """

    def client(z, c):
        y = solve(z, c, local.proximal(beta))
        # Not a core.mean_step: it is relative to z, not to the server model.
        step = core.mean(tree.sub(y.params, z), core.aggregation_weight(c, weighting))
        return y.update({"from_lookahead": step})

    def server(params, m, total, round):
        m = tree.axpy(server_lr, total["from_lookahead"].value, tree.scale(lam, m))
        return tree.add(params, m), m

    return core.algorithm(
        client,
        server,
        broadcast=lambda params, m: tree.axpy(lam, m, params),
        init=tree.zeros_like,
        weighting=weighting,
    )


@ALGORITHMS.register(
    "local_momentum",
    paper="polyak1964some",
    instances=("local_momentum:momentum=0.5", "local_momentum:momentum=0.5,weighting=uniform"),
    degenerate={"momentum": 0},
    down="1",
    up="1",
    server="1",
    client="1",
)
def local_momentum(
    setting: core.Setting,
    solve: local.Solver,
    *,
    momentum: Decay = 0.9,
    server_lr: Positive = 1.0,
    weighting: Weighting = "samples",
) -> core.Algorithm:
    """FedAvg with v_i <- momentum v_i + g(y), y <- y - lr v_i, and v_i stored by the client between its rounds.

    With one client that holds all examples this is centralized training. The whole state of the local optimizer
    (--client_optimizer) lasts between rounds; weight decay is part of g, as in PyTorch.

        v_i <- momentum v_i + g(y),   y <- y - lr v_i
        x   <- x + server_lr sum_i p_i (y_i - x)

    Args:
      momentum: of the local steps.

    Source: Polyak, Some Methods of Speeding up the Convergence of Iteration Methods, 1964,
    https://doi.org/10.1016/0041-5553(64)90137-5.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("local_momentum:momentum=0.5")
      {'model': [3.352, 3.22, 3.254]}
    """
    optimizer = optax.chain(optax.trace(momentum), solve.optimizer) if momentum else solve.optimizer
    solve = dataclasses.replace(solve, optimizer=optimizer)

    def client(params, c):
        y = solve(params, c, optimizer=c.state)
        return y.update({"delta": weighted_delta(y, params, c, weighting)}, state=y.optimizer)

    def client_init(params, id):
        return optimizer.init(params)

    return core.algorithm(client, fedavg_server(server_lr), client_init=client_init, weighting=weighting)
