"""FedAdam, FedYogi, FedAdagrad: adaptive server optimizers without bias correction.

    d = sum_i p_i (y_i - x)
    m <- b1 m + (1 - b1) d
    v <- b2 v + (1 - b2) d^2                           FedAdam
    v <- v - (1 - b2) d^2 sign(v - d^2)                FedYogi
    v <- v + d^2                                       FedAdagrad
    x <- x + eta m / (sqrt(v) + tau)                   tau outside the root

optax's optimizers differ: they correct the bias or start from other accumulators.

Reddi et al., Adaptive Federated Optimization, 2021, https://arxiv.org/abs/2003.00295.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp

from fedwin import core, local, tree
from fedwin.algorithms import common
from fedwin.algorithms.common import Weighting
from fedwin.algorithms.registry import ALGORITHMS
from fedwin.registry.ranges import Decay, NonNegative, Positive


class Moments(NamedTuple):
    """State of an adaptive server.

    Attributes:
      m: first moment, like params.
      v: second moment (FedAdam, FedYogi) or sum of squares (FedAdagrad), like params.
    """

    m: Any
    v: Any


def is_moments(node) -> bool:
    """Returns whether a node of a server state is Moments, which FedAdam and FedYogi declare resettable."""
    return isinstance(node, Moments)


def adam_moment(b2):
    """Returns Adam's update of the second moment.

        b2 v + (1 - b2) d^2

    Args:
      b2: decay.

    Returns:
      (v, d) -> v, elementwise.
    """
    return lambda v, d: b2 * v + (1 - b2) * d**2


def yogi_moment(b2):
    """Returns Yogi's update of the second moment.

        v - (1 - b2) d^2 sign(v - d^2)

    Args:
      b2: decay.

    Returns:
      (v, d) -> v, elementwise.
    """
    return lambda v, d: v - (1 - b2) * d**2 * jnp.sign(v - d**2)


def adagrad_moment(v, d):
    """Computes Adagrad's sum of squares.

        v + d^2

    Args:
      v: the sum so far, an array.
      d: the mean step, like v.

    Returns:
      The new sum, like v.
    """
    return v + d**2


def adaptive_server(second_moment, server_lr, b1, tau, v0=0.0):
    """Returns the server of an adaptive method.

        m <- b1 m + (1 - b1) d,   v <- second_moment(v, d),   x <- x + server_lr m / (sqrt(v) + tau)

    Args:
      second_moment: (v, d) -> v, elementwise.
      server_lr: server learning rate.
      b1: decay of the first moment.
      tau: added to the root.
      v0: initial second moment.

    Returns:
      (init, server): init maps params to Moments; server is (params, state, total, round) -> (params, state).
    """

    def init(params):
        return Moments(tree.zeros_like(params), tree.map(lambda x: jnp.full_like(x, v0), params))

    def server(params, state, total, round):
        d = total["delta"].value
        m = tree.lerp(1 - b1, state.m, d)
        v = tree.map(second_moment, state.v, d)
        ascent = tree.map(lambda m, v: m / (jnp.sqrt(v) + tau), m, v)
        return tree.axpy(server_lr, ascent, params), Moments(m, v)

    return init, server


def _adaptive(second_moment, solve, server_lr, b1, tau, v0, weighting, resettable=is_moments):
    init, server = adaptive_server(second_moment, server_lr, b1, tau, v0)
    return core.algorithm(
        common.fedavg_client(solve, weighting), server, init=init, weighting=weighting, resettable=resettable
    )


@ALGORITHMS.register(
    "fedadam",
    paper="reddi2021adaptive",
    instances=("fedadam:server_lr=0.1",),
    down="1",
    up="1",
    server="3",
    client="0",
)
def fedadam(
    setting: core.Setting,
    solve: local.Solver,
    *,
    server_lr: Positive = 0.01,
    b1: Decay = 0.9,
    b2: Decay = 0.99,
    tau: NonNegative = 1e-3,
    v0: NonNegative = 0.0,
    weighting: Weighting = "samples",
) -> core.Algorithm:
    """FedAdam: v <- b2 v + (1 - b2) d^2, x <- x + server_lr m / (sqrt(v) + tau).

        d = sum_i p_i (y_i - x),   m <- b1 m + (1 - b1) d,   v <- b2 v + (1 - b2) d^2
        x <- x + server_lr m / (sqrt(v) + tau)

    Args:
      b1: first-moment decay.
      b2: second-moment decay.
      tau: degree of adaptivity, added outside the root.
      v0: initial second moment (the paper starts at tau^2 or above).

    Source: https://arxiv.org/abs/2003.00295.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("fedadam:server_lr=0.4")
      {'model': [5.572, 4.16, 3.244]}
    """
    return _adaptive(adam_moment(b2), solve, server_lr, b1, tau, v0, weighting)


@ALGORITHMS.register(
    "fedyogi",
    paper="reddi2021adaptive",
    instances=("fedyogi:server_lr=0.1",),
    down="1",
    up="1",
    server="3",
    client="0",
)
def fedyogi(
    setting: core.Setting,
    solve: local.Solver,
    *,
    server_lr: Positive = 0.01,
    b1: Decay = 0.9,
    b2: Decay = 0.99,
    tau: NonNegative = 1e-3,
    v0: NonNegative = 0.0,
    weighting: Weighting = "samples",
) -> core.Algorithm:
    """FedYogi: v <- v - (1 - b2) d^2 sign(v - d^2), x <- x + server_lr m / (sqrt(v) + tau).

        d = sum_i p_i (y_i - x),   m <- b1 m + (1 - b1) d,   v <- v - (1 - b2) d^2 sign(v - d^2)
        x <- x + server_lr m / (sqrt(v) + tau)

    Args:
      b1: first-moment decay.
      b2: second-moment decay.
      tau: degree of adaptivity, added outside the root.
      v0: initial second moment.

    Source: https://arxiv.org/abs/2003.00295.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("fedyogi:server_lr=0.5")
      {'model': [5.264, 3.729, 3.026]}
    """
    return _adaptive(yogi_moment(b2), solve, server_lr, b1, tau, v0, weighting)


@ALGORITHMS.register(
    "fedadagrad",
    paper="reddi2021adaptive",
    down="1",
    up="1",
    server="3",
    client="0",
)
def fedadagrad(
    setting: core.Setting,
    solve: local.Solver,
    *,
    server_lr: Positive = 0.1,
    b1: Decay = 0.0,
    tau: NonNegative = 1e-9,
    v0: NonNegative = 0.0,
    weighting: Weighting = "samples",
) -> core.Algorithm:
    """FedAdagrad: v <- v + d^2, x <- x + server_lr m / (sqrt(v) + tau).

        d = sum_i p_i (y_i - x),   m <- b1 m + (1 - b1) d,   v <- v + d^2
        x <- x + server_lr m / (sqrt(v) + tau)

    Args:
      b1: first-moment decay.
      tau: degree of adaptivity, added outside the root.
      v0: initial second moment.

    Source: https://arxiv.org/abs/2003.00295.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("fedadagrad:server_lr=0.5")
      {'model': [5.25, 4.47, 4.027]}
    """
    return _adaptive(adagrad_moment, solve, server_lr, b1, tau, v0, weighting, resettable=core.nothing_resettable)
