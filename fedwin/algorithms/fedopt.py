"""FedOpt and FedAvgM: the server feeds the clients' mean step to an optimizer.

    Delta = sum_i p_i (x - y_i)                        a pseudo-gradient
    server   x <- x - SERVEROPT(Delta)                 initialized once, its state lasts for the whole run

FedAvgM is the momentum case, v <- beta v + Delta, x <- x - eta v, without a factor (1 - beta).

Reddi et al., Adaptive Federated Optimization, 2021, https://arxiv.org/abs/2003.00295.
Hsu et al., Measuring the Effects of Non-Identical Data Distribution for Federated Visual Classification, 2019,
https://arxiv.org/abs/1909.06335.
"""

from typing import Literal

import optax

from fedwin import core, local, tree
from fedwin.algorithms import common
from fedwin.algorithms.adaptive import adagrad_moment, adam_moment, adaptive_server, is_moments, yogi_moment
from fedwin.algorithms.common import Weighting
from fedwin.algorithms.registry import ALGORITHMS
from fedwin.registry.ranges import Decay, NonNegative, Positive

Optimizer = Literal["sgd", "momentum", "adam", "yogi", "adagrad"]


def server_optimizer(optimizer: optax.GradientTransformation):
    """Returns a server that applies an optax transformation to the pseudo-gradient Delta.

    Args:
      optimizer: an optax transformation, with its own learning rate.

    Returns:
      (init, server): params -> state, and (params, state, total, round) -> (params, state).
    """

    def server(params, state, total, round):
        gradient = tree.scale(-1, total["delta"].value)
        updates, state = optimizer.update(gradient, state, params)
        return tree.add(params, updates), state

    return optimizer.init, server


def named_server(optimizer, server_lr, momentum, nesterov, b1, b2, eps=None, bias_correction=True):
    """Returns a server by the name of its optimizer.

    Args:
      optimizer: one of Optimizer, or an optax transformation (with its own learning rate).
      server_lr: learning rate.
      momentum: beta of 'momentum'.
      nesterov: Nesterov's form of 'momentum'.
      b1: first-moment decay of 'adam' and 'yogi'.
      b2: second-moment decay of 'adam' and 'yogi'.
      eps: added to the root; None = 0.1 ('adam', 'yogi') or 0.01 ('adagrad').
      bias_correction: of 'adam' and 'yogi'.

    Returns:
      ((init, server) as `server_optimizer`, node of the server state -> whether it is resettable).
    """
    if isinstance(optimizer, optax.GradientTransformation):
        return server_optimizer(optimizer), is_adam_state
    eps = {"adagrad": 0.01}.get(optimizer, 0.1) if eps is None else eps
    if optimizer == "adagrad":
        # optax's Adagrad adds eps inside the root and starts v at 0.1.
        return adaptive_server(adagrad_moment, server_lr, 0.0, eps), core.nothing_resettable
    if optimizer in ("adam", "yogi") and not bias_correction:
        moment = adam_moment if optimizer == "adam" else yogi_moment
        return adaptive_server(moment(b2), server_lr, b1, eps), is_moments
    optimizers = {
        "sgd": lambda: optax.sgd(server_lr),
        "momentum": lambda: optax.sgd(server_lr, momentum, nesterov),
        "adam": lambda: optax.adam(server_lr, b1, b2, eps),
        "yogi": lambda: optax.yogi(server_lr, b1, b2, eps),
    }
    return server_optimizer(optimizers[optimizer]()), is_adam_state


def is_adam_state(node) -> bool:
    """Returns whether a node of a server state holds the moments of optax's Adam or Yogi."""
    return isinstance(node, optax.ScaleByAdamState)


@ALGORITHMS.register(
    "fedopt",
    paper="reddi2021adaptive",
    instances=(
        "fedopt:optimizer=sgd",
        "fedopt:optimizer=momentum,nesterov=true",
        "fedopt:optimizer=adam,server_lr=0.1",
        "fedopt:optimizer=adam,server_lr=0.1,bias_correction=false",
        "fedopt:optimizer=yogi,server_lr=0.1",
        "fedopt:optimizer=adagrad,server_lr=0.1",
    ),
    degenerate={"optimizer": "sgd"},
    down="1",
    up="1",
    reported="1x",
    server="1 + optimizer",
    client="0",
)
def fedopt(
    setting: core.Setting,
    solve: local.Solver,
    *,
    optimizer: Optimizer | optax.GradientTransformation = "sgd",
    server_lr: Positive = 1.0,
    momentum: Decay = 0.9,
    nesterov: bool = False,
    b1: Decay = 0.9,
    b2: Decay = 0.99,
    eps: NonNegative | None = None,
    bias_correction: bool = True,
    weighting: Weighting = "samples",
) -> core.Algorithm:
    """FedOpt: x <- x - SERVEROPT(Delta), with optax's rules but for Adagrad.

        Delta = sum_i p_i (x - y_i),   x <- x - SERVEROPT(Delta)

    Args:
      optimizer: 'sgd', 'momentum', 'adam', 'yogi', 'adagrad' (v <- v + Delta^2, step Delta / (sqrt(v) + eps)), or an
        optax transformation (with its own learning rate).
      server_lr: learning rate of the server optimizer.
      momentum: beta of 'momentum'.
      nesterov: Nesterov's form of 'momentum'.
      b1: first-moment decay of 'adam' and 'yogi'.
      b2: second-moment decay of 'adam' and 'yogi'.
      eps: added to the root, not inside it; none = 0.1 ('adam', 'yogi') or 0.01 ('adagrad').
      bias_correction: false replaces 'adam' and 'yogi' by the uncorrected rules of Adaptive Federated Optimization.

    Source: https://arxiv.org/abs/2003.00295.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("fedopt:optimizer=adam,server_lr=0.5")
      {'model': [5.383, 4.214, 3.471]}
      >>> testing.run_rounds("fedopt:optimizer=sgd") == testing.run_rounds("fedavg")
      True
    """
    (init, server), resettable = named_server(optimizer, server_lr, momentum, nesterov, b1, b2, eps, bias_correction)
    return core.algorithm(
        common.fedavg_client(solve, weighting), server, init=init, weighting=weighting, resettable=resettable
    )


@ALGORITHMS.register(
    "fedavgm",
    paper="hsu2019measuring",
    instances=("fedavgm:beta=0.5",),
    degenerate={"beta": 0},
    down="1",
    up="1",
    reported="1x",
    server="2",
    client="0",
)
def fedavgm(
    setting: core.Setting,
    solve: local.Solver,
    *,
    beta: Decay = 0.9,
    server_lr: Positive = 1.0,
    nesterov: bool = False,
    weighting: Weighting = "samples",
) -> core.Algorithm:
    """FedAvgM: v <- beta v + Delta, x <- x - server_lr v.

        Delta = sum_i p_i (x - y_i),   v <- beta v + Delta,   x <- x - server_lr v

    Args:
      beta: server momentum.
      nesterov: step by Delta + beta v instead of v.

    Source: https://arxiv.org/abs/1909.06335.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("fedavgm:beta=0.5")
      {'model': [3.916, 3.002, 3.06]}
    """

    def server(params, v, total, round):
        delta = total["delta"].value  # = -Delta
        v = tree.axpy(beta, v, delta)
        return tree.axpy(server_lr, tree.axpy(beta, v, delta) if nesterov else v, params), v

    return core.algorithm(common.fedavg_client(solve, weighting), server, init=tree.zeros_like, weighting=weighting)
