"""FedAdamW: AdamW on the clients, started at the clients' mean second moment and aligned with the last mean gradient.

The second moments start from 0 once, in the first round: w, the weight that this 0 still has in v, travels with the
mean, so that the bias correction counts the steps of all rounds, even where clients take different numbers of steps.

Where the authors' code (https://github.com/junkangLiu0/FedAdamW) differs: it sends whole second moments (blocks=entry),
also corrects the first moment by the steps of all rounds, clips gradients at norm 10, takes a nominal number of steps
for J_i, and passes vbar to a client only if the process that runs the client has run another one before.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedwin import core, local, rules, tree
from fedwin.algorithms import common
from fedwin.algorithms.fedavg_m import mean_gradient, step_with_length
from fedwin.algorithms.registry import ALGORITHMS, facts
from fedwin.local.optimizers import check_plain_sgd, with_decoupled_decay
from fedwin.registry.ranges import Decay, NonNegative, Positive, Share
from fedwin.tree import PyTree


class SecondMoment(NamedTuple):
    """A mean of clients' second moments.

    Attributes:
      v: vbar, a number per array of the parameters, or like params.
      zero: w, the weight that the initial 0 has in v, float [].
    """

    v: PyTree
    zero: jax.Array


class _Moments(NamedTuple):
    """State of the local optimizer: step k of the round, the first moment, and the second one."""

    count: jax.Array  # type: ignore[assignment]  # a tuple has a method of this name
    m: PyTree
    second: SecondMoment


def _adamw(b1, b2, eps, weight_decay) -> optax.GradientTransformation:
    """Returns AdamW at unit learning rate whose second moment may start from a given one."""

    def init(params):
        zeros = tree.zeros_like(params)
        return _Moments(jnp.zeros((), jnp.int32), zeros, SecondMoment(zeros, jnp.ones((), float)))

    def update(g, state, params):
        count, m = state.count + 1, tree.lerp(1 - b1, state.m, g)
        v, zero = tree.map(lambda v, g: b2 * v + (1 - b2) * g**2, state.second.v, g), b2 * state.second.zero

        def descent(m, v, x):
            return -(m / (1 - b1**count) / (jnp.sqrt(v / (1 - zero)) + eps) + weight_decay * x).astype(x.dtype)

        return tree.map(descent, m, v, params), _Moments(count, m, SecondMoment(v, zero))

    return optax.GradientTransformation(init, update)


@ALGORITHMS.register(
    "fedadamw",
    paper="liu2025fedadamw",
    instances=("fedadamw:eps=0.001",),
    **facts(down="2 + A + 1 numbers", up="1 + A + 2 numbers", server="2 + A + 1 numbers"),
)
def fedadamw(
    setting: core.Setting,
    solve: local.Solver,
    *,
    alpha: Share = 0.5,
    b1: Decay = 0.9,
    b2: Decay = 0.999,
    eps: NonNegative = 1e-8,
    blocks: Literal["array", "entry"] = "array",
    server_lr: Positive = 1.0,
    weighting: common.Weighting = "samples",
) -> core.Algorithm:
    """FedAdamW: AdamW's step + lr alpha Delta from v = vbar, the clients' mean; Delta the last round's mean gradient.

        m <- b1 m + (1 - b1) g,   v <- b2 v + (1 - b2) g^2,   m = 0 and v = vbar at first
        y <- y - lr (mhat / (sqrt(vhat) + eps) + weight_decay y + alpha Delta)
        mhat = m / (1 - b1^k),   vhat = v / (1 - w b2^k)    in step k of the round; w = b2^steps of the rounds before
        Delta <- sum_i p_i (x - y_i) / sum_i p_i lr J_i
        x <- x + server_lr sum_i p_i (y_i - x),   vbar <- sum_i p_i B(v_i)

    B is the mean over a block, one for each of the A arrays of parameters. `--weight_decay` is decoupled; 0.01 in the
    authors' code.

    Args:
      alpha: weight of the last round's mean gradient.
      blocks: 'array': each kernel and each bias is a block; 'entry': B(v) = v, which is as large as the model.

    Raises:
      UserError: when another optimizer is set for the clients.

    Source: Liu et al., FedAdamW: A Communication-Efficient Optimizer with Convergence and Generalization Guarantees for
    Federated Large Models, 2025, https://arxiv.org/abs/2510.27486.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("fedadamw")
      {'model': [6.988, 6.026, 4.868]}
    """
    check_plain_sgd(solve, "fedadamw", "AdamW")
    solve = with_decoupled_decay(solve, lambda decay: _adamw(b1, b2, eps, decay))
    block = jnp.mean if blocks == "array" else lambda v: v

    def client(down, c):
        params, step, second = down
        aligned = rules.heavy_ball(lambda s: tree.scale(-alpha * s.lr, step))
        v = tree.map(lambda v, x: jnp.broadcast_to(v, x.shape), second.v, params)
        start = solve.optimizer.init(params)._replace(second=SecondMoment(v, second.zero))
        y = solve(params, c, aligned, optimizer=start)
        message = step_with_length(y, params, c, weighting)
        last = y.optimizer.second._replace(v=tree.map(block, y.optimizer.second.v))
        message["second"] = core.mean(last, core.aggregation_weight(c, weighting))
        return y.update(message)

    def server(params, state, total, round):
        return common.add_mean_step(params, total, server_lr), (mean_gradient(total, state[0]), total["second"].value)

    def init(params):
        zeros = tree.zeros_like(params)
        return zeros, SecondMoment(tree.map(block, zeros), jnp.ones((), float))

    return core.algorithm(
        client, server, broadcast=lambda params, state: (params, *state), init=init, weighting=weighting
    )
