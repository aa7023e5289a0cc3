"""FedDyn: dynamic regularization aligns the clients' optima with the server's.

This is the paper's rule with h_i = -alpha q_i and h = -alpha s: no division by alpha, and s = (1/K) sum_i q_i after
every round. s integrates without decay, so a run can diverge; that is a property of the method, not an error. The sum
is over the clients that take part, however many: it needs no |S|, and Client.importance does not enter it.
"""

from typing import Literal, NamedTuple

from fedwin import core, local, tree
from fedwin.algorithms.common import Weighting
from fedwin.algorithms.registry import ALGORITHMS, facts
from fedwin.registry.ranges import NonNegative, Positive
from fedwin.tree import PyTree


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
    reported="1x",
    asynchronous=True,
    **facts(server="2", client="1"),
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
      eval_model: 'server' evaluates x, 'average' sum_i p_i y_i (as the official code, which never evaluates x).
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
        return model._replace(params=state.average) if evaluates_average else model

    return core.algorithm(
        client,
        server,
        init=lambda params: FedDynState(tree.zeros_like(params), params if evaluates_average else None),
        client_init=lambda params, id: tree.zeros_like(params),
        eval_model=evaluated,
        weighting=weighting,
    )
