"""MIME, MIME-Momentum, MIMELite: clients mimic a centralized optimizer whose state the server keeps.

There are no factors (1 - beta), as in the paper's code. MIME needs two round trips per round; MIMELite, which omits the
correction, needs one: the full gradients are sent with the models. MIME with beta = 0 is MIME-SGD and has no m. A
client that drops out takes part in neither round trip.
"""

from typing import NamedTuple

from fedwin import core, local, rules, tree
from fedwin.algorithms import common
from fedwin.algorithms.registry import ALGORITHMS, facts
from fedwin.registry.ranges import Decay, Positive
from fedwin.tree import PyTree


class MimeState(NamedTuple):
    """State of MIME's server.

    Attributes:
      m: momentum, like params; None without momentum.
      c: the round's mean gradient, between MIME's two round trips; None for MIMELite.
    """

    m: PyTree
    c: PyTree = None


@ALGORITHMS.register(
    "mime",
    paper="karimireddy2021breaking",
    instances=("mime", "mime:beta=0.5,weighting=uniform"),
    reported="2x (3x)",
    **facts(down="2 (3 with momentum)", up="2", server="1 (2)"),
)
def mime(
    setting: core.Setting,
    solve: local.Solver,
    *,
    beta: Decay = 0.0,
    server_lr: Positive = 1.0,
    weighting: common.Weighting = "samples",
) -> core.Algorithm:
    """MIME: direction g(y) - g(x) + c + beta m.

        c = sum_i p_i grad f_i(x)
        y <- y - lr (g(y) - g(x) + c + beta m),   both g on the same mini-batch
        m <- beta m + c,   x <- x + server_lr sum_i p_i (y_i - x)

    Args:
      beta: momentum; 0 is MIME-SGD, 0.9 the usual MIME-Momentum.
      weighting: p_i proportional to N_i ('samples') or equal ('uniform'), for models and full gradients.

    Source: Karimireddy et al., Mime: Mimicking Centralized Stochastic Algorithms in Federated Learning, 2021,
    https://arxiv.org/abs/2008.03606.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("mime:beta=0.1")["model"]  # the minimum is 3
      [3.392, 3.003, 3.001]
    """

    def gradient(params, c):
        return core.Update({"gradient": core.mean(solve.gradient(params, c), core.aggregation_weight(c, weighting))})

    def collect(params, state, total, round):
        return params, MimeState(state.m, total["gradient"].value)

    def client(down, c):
        params, state = down
        y = solve(params, c, rules.svrg(params, tree.axpy(beta, state.m, state.c) if beta else state.c))
        return y.update({"delta": common.weighted_delta(y, params, c, weighting)})

    def server(params, state, total, round):
        m = tree.axpy(beta, state.m, state.c) if beta else None
        return common.add_mean_step(params, total, server_lr), MimeState(m, state.c)

    def init(params):
        zeros = tree.zeros_like(params)
        return MimeState(zeros if beta else None, zeros)

    second = core.algorithm(
        client,
        server,
        broadcast=lambda params, state: (params, state),
        init=init,
        weighting=weighting,
        # The clients already have x: only m and c are transmitted.
        wire=lambda down, message: (down[1], message),
    )
    return second._replace(phases=(core.Phase(lambda params, state: params, gradient, collect), *second.phases))


@ALGORITHMS.register(
    "mimelite",
    like="mime",
    instances=("mimelite:beta=0.5",),
    degenerate={"beta": 0},
    down="2",
    reported="2x",
    server="2",
)
def mimelite(
    setting: core.Setting,
    solve: local.Solver,
    *,
    beta: Decay = 0.9,
    server_lr: Positive = 1.0,
    weighting: common.Weighting = "samples",
) -> core.Algorithm:
    """MIMELite: direction g(y) + beta m, the full gradient grad f_i(x) sent along with y_i.

        y <- y - lr (g(y) + beta m)
        m <- beta m + sum_i p_i grad f_i(x),   x <- x + server_lr sum_i p_i (y_i - x)

    Args:
      beta: momentum, 0.9 is the usual one.

    Source: https://arxiv.org/abs/2008.03606.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("mimelite:beta=0.5")
      {'model': [3.916, 3.016, 3.272]}
    """

    def client(down, c):
        params, state = down
        gradient = solve.gradient(params, c)
        y = solve(params, c, rules.shift(tree.scale(beta, state.m)))
        message = {
            "delta": common.weighted_delta(y, params, c, weighting),
            "gradient": core.mean(gradient, core.aggregation_weight(c, weighting)),
        }
        return y.update(message)

    def server(params, state, total, round):
        m = tree.axpy(beta, state.m, total["gradient"].value)
        return common.add_mean_step(params, total, server_lr), MimeState(m)

    return core.algorithm(
        client,
        server,
        broadcast=lambda params, state: (params, state),
        init=lambda params: MimeState(tree.zeros_like(params)),
        weighting=weighting,
    )
