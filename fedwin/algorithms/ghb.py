"""GHB: generalized heavy-ball momentum, along the path of the server model over the last tau rounds.

C = E|S| / K is the mean share of clients that take part in a round, without those that drop out. x^{t-1} is the model
that round t = 1, 2, ... starts from. The step is that of `rules.heavy_ball`.
"""

import jax.numpy as jnp

from fedwin import core, local, rules, tree, window
from fedwin.algorithms import common
from fedwin.algorithms.registry import ALGORITHMS, facts
from fedwin.registry.ranges import NonNegative, Positive, PositiveInt


@ALGORITHMS.register(
    "ghb",
    paper="zaccone2023communication",
    instances=("ghb:tau=2,beta=0.5", "ghb:beta=0.5,nesterov=true"),
    degenerate={"beta": 0},
    warmup_horizon="tau",
    reported="1.5x",
    asynchronous=True,
    **facts(down="2", server="1 + tau"),
)
def ghb(
    setting: core.Setting,
    solve: local.Solver,
    *,
    tau: PositiveInt | None = None,
    beta: NonNegative = 0.9,
    nesterov: bool = False,
    server_lr: Positive = 1.0,
    weighting: common.Weighting = "samples",
) -> core.Algorithm:
    """GHB: step -lr g(y) + (beta / J_i) (x^{t-1} - x^{t-1-tau}) / tau.

        y <- y - lr g(y) + (beta / J_i) (x^{t-1} - x^{t-1-tau}) / tau
        x <- x + server_lr sum_i p_i (y_i - x)

    Args:
      tau: rounds that the momentum covers; none = 1 / C rounded, the paper's best value. A run of at most that many
        rounds has no momentum.
      beta: momentum.
      nesterov: take gradients at the look-ahead y + move.

    Source: Communication-Efficient Heterogeneous Federated Learning with Generalized Heavy-Ball Momentum,
    https://arxiv.org/abs/2311.18578.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("ghb:tau=1,beta=0.5")
      {'model': [3.916, 3.041, 3.0]}
    """
    if tau is None:
        tau = max(1, round(1 / setting.participation))
        # A delay line longer than the run would never be read.
        tau = min(tau, setting.most_rounds or tau)

    def init(params):
        packing = window.flat(params)
        return window.delay(packing.size, tau, packing.dtype)

    def broadcast(params, line):
        packing = window.flat(params)
        span = (packing.pack(params) - line.oldest) / tau
        return params, packing.unpack(jnp.where(line.count >= tau, span, 0))

    def client(down, c):
        params, momentum = down
        y = solve(params, c, rules.heavy_ball(lambda s: tree.scale(beta / s.steps, momentum), nesterov))
        return y.update({"delta": common.weighted_delta(y, params, c, weighting)})

    def server(params, line, total, round):
        # The delay line stores the models that rounds started from.
        line = window.shift(line, window.flat(params).pack(params))
        return common.add_mean_step(params, total, server_lr), line

    return core.algorithm(client, server, broadcast=broadcast, init=init, weighting=weighting)
