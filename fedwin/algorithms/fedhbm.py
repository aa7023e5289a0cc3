"""FedHBM, LOCAL-GHB: heavy-ball momentum along the path since the model that the client last received, or last trained.

C and x^{t-1} are as in `ghb`: LOCAL-GHB and FedHBM assume that a client returns after 1 / C rounds on average;
scale=tau_i uses the actual number of rounds instead. At its first participation a client has no a_i. It then has no
momentum (first='unset'), or the momentum is x^{t-1} - r_i, constant over the local steps, with r_i = x^0 for all
('shared', 'pretrained') or drawn per client from the model's initializer ('random').
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from fedwin import core, local, rules, tree
from fedwin.algorithms import common
from fedwin.algorithms.registry import ALGORITHMS, facts
from fedwin.errors import UserError
from fedwin.registry.ranges import NonNegative, Positive
from fedwin.tree import PyTree

First = Literal["unset", "shared", "random", "pretrained"]


class HeavyBallRow(NamedTuple):
    """State of a client of LOCAL-GHB and FedHBM.

    Attributes:
      anchor: a_i, or r_i before the first participation, like params.
      last: 0-based round of the last participation, -1 before the first, int32 [].
    """

    anchor: PyTree
    last: jax.Array


def anchor_init(setting, first):
    """Returns (params, id, key) -> HeavyBallRow of a client that has not taken part yet.

    Raises:
      UserError: when first='random' and the setting has no init_fn.
    """
    if first == "random" and setting.init_fn is None:
        raise UserError("first=random draws anchors from the model's initializer: pass a setting with init_fn.")

    def client_init(params, id, key):
        if first == "random":
            anchor = setting.init_fn(jax.random.fold_in(key, id))
        else:
            anchor = tree.zeros_like(params) if first == "unset" else params
        return HeavyBallRow(anchor, jnp.full((), -1, jnp.int32))

    return client_init


@ALGORITHMS.register(
    "local_ghb",
    paper="zaccone2023communication",
    instances=("local_ghb:beta=0.5", "local_ghb:beta=0.5,first=random,scale=tau_i"),
    degenerate={"beta": 0},
    reported="1x",
    asynchronous=True,
    **facts(client="1"),
)
def local_ghb(
    setting: core.Setting,
    solve: local.Solver,
    *,
    beta: NonNegative = 0.9,
    first: First = "unset",
    scale: Literal["C", "tau_i"] = "C",
    nesterov: bool = False,
    server_lr: Positive = 1.0,
    weighting: common.Weighting = "samples",
) -> core.Algorithm:
    """LOCAL-GHB: step -lr g(y) + (beta C / J_i) (x^{t-1} - a_i), a_i the model received last time.

        y <- y - lr g(y) + (beta C / J_i) (x^{t-1} - a_i),   a_i <- x^{t-1}
        x <- x + server_lr sum_i p_i (y_i - x)

    Args:
      beta: momentum.
      first: anchor before the first participation: unset, shared, random, pretrained (= shared).
      scale: 'C', the participation ratio, or 'tau_i', 1 / rounds since the client's last participation (C at the
        first one).
      nesterov: take gradients at the look-ahead y + move.

    Source: https://arxiv.org/abs/2311.18578.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("local_ghb:beta=0.5")
      {'model': [3.916, 3.041, 3.0]}
    """

    def client(params, c):
        anchor, last = c.state
        has_anchor = True if first != "unset" else last >= 0
        momentum = tree.where(has_anchor, tree.sub(params, anchor), tree.zeros_like(params))
        factor = setting.participation
        if scale == "tau_i":
            # An initial anchor has no age: the first participation uses C, like FedHBM's.
            factor = jnp.where(last >= 0, 1 / (c.round - last).astype(float), factor)
        y = solve(params, c, rules.heavy_ball(lambda s: tree.scale(beta * factor / s.steps, momentum), nesterov))
        return y.update({"delta": common.weighted_delta(y, params, c, weighting)}, state=HeavyBallRow(params, c.round))

    client_init = anchor_init(setting, first)
    return core.algorithm(client, common.fedavg_server(server_lr), client_init=client_init, weighting=weighting)


@ALGORITHMS.register(
    "fedhbm", like="local_ghb", instances=("fedhbm", "fedhbm:first=shared", "fedhbm:first=random,nesterov=true")
)
def fedhbm(
    setting: core.Setting,
    solve: local.Solver,
    *,
    beta: NonNegative = 1.0,
    first: First = "unset",
    nesterov: bool = False,
    server_lr: Positive = 1.0,
    weighting: common.Weighting = "samples",
) -> core.Algorithm:
    """FedHBM: step -lr g(y) + (beta C / J_i) (y - a_i), a_i the model trained last time.

        y <- y - lr g(y) + (beta C / J_i) (y - a_i),   a_i <- y_i
        x <- x + server_lr sum_i p_i (y_i - x)

    The parameters are LOCAL-GHB's. Source: https://arxiv.org/abs/2311.18578.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("fedhbm:beta=0.5")
      {'model': [3.916, 3.131, 3.069]}
    """

    def client(params, c):
        anchor, last = c.state
        # The momentum of the first participation is LOCAL-GHB's: constant over the local steps.
        initial = tree.zeros_like(params) if first == "unset" else tree.sub(params, anchor)

        def move(s: rules.Step):
            momentum = tree.where(last >= 0, tree.sub(s.params, anchor), initial)
            return tree.scale(beta * setting.participation / s.steps, momentum)

        y = solve(params, c, rules.heavy_ball(move, nesterov))
        message = {"delta": common.weighted_delta(y, params, c, weighting)}
        return y.update(message, state=HeavyBallRow(y.params, c.round))

    client_init = anchor_init(setting, first)
    return core.algorithm(client, common.fedavg_server(server_lr), client_init=client_init, weighting=weighting)
