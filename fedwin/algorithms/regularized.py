"""FedProx, FedDyn, AdaBest: clients are pulled to the received model, or corrected by their last steps.

FedProx: the factor of the pull is mu, as in the paper; some implementations use mu/2.

FedDyn is the paper's rule with h_i = -alpha q_i and h = -alpha s: no division by alpha, and s = (1/K) sum_i q_i after
every round. s integrates without decay, so a run can diverge; that is a property of the method, not an error. The sum
is over the clients that take part, however many: it needs no |S|, and Client.importance does not enter it.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from fedwin import core, local, tree
from fedwin.algorithms.common import ALGORITHMS, Weighting, fedavg_client, fedavg_server
from fedwin.core import Variables
from fedwin.registry.ranges import NonNegative, Positive, Share
from fedwin.tree import PyTree


@ALGORITHMS.register(
    "fedprox",
    paper="li2020federated",
    instances=("fedprox:mu=0.5",),
    degenerate={"mu": 0},
    down="1",
    up="1",
    reported="1x",
    server="1",
    client="0",
)
def fedprox(
    setting: core.Setting,
    solve: local.Solver,
    *,
    mu: NonNegative = 0.01,
    server_lr: Positive = 1.0,
    weighting: Weighting = "samples",
) -> core.Algorithm:
    """FedProx: direction g(y) + mu (y - x).

    Args:
      mu: strength of the pull towards the received model.

    Source: Li et al., Federated Optimization in Heterogeneous Networks, 2020, https://arxiv.org/abs/1812.06127.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("fedprox:mu=0.5")
      {'model': [4.1, 3.403, 3.206]}
    """
    client = fedavg_client(solve, weighting, local.proximal(mu))
    return core.algorithm(client, fedavg_server(server_lr), weighting=weighting)


class FedDynState(NamedTuple):
    """State of FedDyn's server.

    Attributes:
      s: mean of all clients' q_i, like params.
      average: sum_i p_i y_i of the last round, like params; None unless it is evaluated.
    """

    s: PyTree
    average: PyTree


@ALGORITHMS.register(
    "feddyn",
    paper="acar2021federated",
    instances=("feddyn:alpha=0.1", "feddyn:alpha=0.1,eval_model=average,client_alpha=by_size"),
    down="1",
    up="1",
    reported="1x",
    server="2",
    client="1",
)
def feddyn(
    setting: core.Setting,
    solve: local.Solver,
    *,
    alpha: NonNegative = 0.01,
    server_lr: Positive = 1.0,
    weighting: Weighting = "samples",
    eval_model: Literal["server", "average"] = "server",
    client_alpha: Literal["common", "by_size"] = "common",
) -> core.Algorithm:
    """FedDyn: direction g(y) + alpha (y - x) + alpha q_i, x = mean + s.

        y <- y - lr (g(y) + alpha (y - x) + alpha q_i),   q_i <- q_i + (y_i - x)
        s <- s + (1/K) sum_{i in S} (y_i - x),   x <- x + server_lr (sum_i p_i y_i + s - x)

    Args:
      alpha: strength of the regularizer.
      eval_model: 'server' evaluates x, 'average' evaluates sum_i p_i y_i.
      client_alpha: 'common', or 'by_size' for the official code's alpha (mean N) / N_i.

    Source: Acar et al., Federated Learning Based on Dynamic Regularization, 2021, https://arxiv.org/abs/2111.04263.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("feddyn:alpha=0.4")
      {'model': [3.004, 3.188, 3.05]}
    """
    evaluates_average = eval_model == "average"

    def client(params, c):
        a = alpha if client_alpha == "common" else alpha / (setting.num_clients * c.weight)
        y = solve(params, c, local.proximal(a, inner=local.shift(tree.scale(a, c.state))))
        delta = tree.sub(y.params, params)
        message = {
            "delta": core.mean_step(delta, core.aggregation_weight(c, weighting)),
            "moved": core.DerivedFromStep(delta),
        }
        return y.update(message, state=tree.add(c.state, delta))

    def server(params, state, total, round):
        delta = total["delta"].value
        s = tree.axpy(1 / setting.num_clients, total["moved"].value, state.s)
        average = tree.add(params, delta) if evaluates_average else None
        return tree.axpy(server_lr, tree.add(delta, s), params), FedDynState(s, average)

    def evaluated(model, state):
        return Variables(state.average, model.stats) if evaluates_average else model

    return core.algorithm(
        client,
        server,
        init=lambda params: FedDynState(tree.zeros_like(params), params if evaluates_average else None),
        client_init=lambda params, id: tree.zeros_like(params),
        eval_model=evaluated,
        weighting=weighting,
        # A real server computes the plain sum from the y_i that it receives: only the step is transmitted.
        wire=lambda down, message: (down, message["delta"]),
    )


class AdaBestState(NamedTuple):
    """State of AdaBest's server.

    Attributes:
      average: a^t, the clients' mean of the last round, like params.
    """

    average: PyTree


class AdaBestRow(NamedTuple):
    """State of one of AdaBest's clients.

    Attributes:
      h: h_i, the estimate of its drift, like params.
      last: t_i, 0-based round of its last participation, -1 before the first, int32 [].
    """

    h: PyTree
    last: jax.Array


@ALGORITHMS.register(
    "adabest",
    paper="varno2022adabest",
    instances=("adabest:mu=0.2", "adabest:eval_model=average"),
    degenerate={"mu": 0, "beta": 0},
    down="1",
    up="1",
    reported="1x",
    server="2",
    client="1 + last round",
)
def adabest(
    setting: core.Setting,
    solve: local.Solver,
    *,
    mu: NonNegative = 0.02,
    beta: Share = 0.8,
    server_lr: Positive = 1.0,
    weighting: Weighting = "samples",
    eval_model: Literal["server", "average"] = "server",
) -> core.Algorithm:
    """AdaBest: direction g(y) - h_i, x = a^t + beta (a^t - a^{t-1}).

        y <- y - lr (g(y) - h_i),   h_i <- h_i / (t - t_i) + mu (x - y_i),   a^t = sum_i p_i y_i
        x <- x + server_lr (a^t + beta (a^t - a^{t-1}) - x)

    Args:
      mu: weight of the client's last step in its estimate.
      beta: extrapolation of the server (1 is for tests only).
      eval_model: 'server' evaluates x, 'average' evaluates a^t.

    Source: Varno et al., AdaBest: Minimizing Client Drift in Federated Learning via Adaptive Bias Estimation, 2022,
    https://arxiv.org/abs/2204.13170.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("adabest:mu=0.2,eval_model=average")
      {'model': [3.916, 3.088, 3.019]}
    """

    def client(params, c):
        h, last = c.state
        y = solve(params, c, local.shift(tree.scale(-1, h)))
        delta = tree.sub(y.params, params)
        # At the first participation h is 0, so any divisor but 0 will do.
        age = jnp.where(last < 0, 1, c.round - last)
        h = tree.axpy(-mu, delta, tree.scale(1 / age.astype(float), h))
        message = {"delta": core.mean_step(delta, core.aggregation_weight(c, weighting))}
        return y.update(message, state=AdaBestRow(h, c.round))

    def server(params, state, total, round):
        delta = total["delta"].value
        average = tree.add(params, delta)
        step = tree.axpy(beta, tree.sub(average, state.average), delta)
        return tree.axpy(server_lr, step, params), AdaBestState(average)

    return core.algorithm(
        client,
        server,
        init=AdaBestState,
        client_init=lambda params, id: AdaBestRow(tree.zeros_like(params), jnp.full((), -1, jnp.int32)),
        eval_model=lambda model, state: Variables(state.average, model.stats) if eval_model == "average" else model,
        weighting=weighting,
    )
