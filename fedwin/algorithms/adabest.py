"""AdaBest: client drift corrected with estimates that decay with the time since the client's last participation."""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from fedwin import core, local, tree
from fedwin.algorithms.common import Weighting
from fedwin.algorithms.registry import ALGORITHMS, facts
from fedwin.registry.ranges import NonNegative, Positive, Share
from fedwin.tree import PyTree


class AdaBestState(NamedTuple):
    """State of AdaBest's server.

    Attributes:
      average: a^t, the mean of the clients' models in the last round, like params.
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
    reported="1x",
    **facts(server="2", client="1 + last round"),
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
      mu: weight of the client's last step in its estimate; the code of its first author has mu (mean N) / N_i.
      beta: extrapolation of the server, 0.98 in that code (1 is for tests only).
      eval_model: 'server' evaluates x, 'average' a^t; with mu = 0, server_lr = 1 they are z and x of fedacg:beta=0.

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
        eval_model=lambda model, state: model._replace(params=state.average) if eval_model == "average" else model,
        weighting=weighting,
    )
