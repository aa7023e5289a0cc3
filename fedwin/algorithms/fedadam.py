"""FedAdam: Adam on the server, without bias correction; FedYogi and FedAdagrad differ in the second moment."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedwin import core, local, tree
from fedwin.algorithms.common import Server, Weighting, fedavg_with
from fedwin.algorithms.registry import ALGORITHMS, facts
from fedwin.registry.ranges import Decay, NonNegative, Positive
from fedwin.tree import PyTree

Moment = Callable[[jax.Array, jax.Array], jax.Array]


class Moments(NamedTuple):
    """State of an adaptive server.

    Attributes:
      m: first moment, like params.
      v: second moment (FedAdam, FedYogi) or sum of squares (FedAdagrad), like params.
    """

    m: PyTree
    v: PyTree


def adam_moment(b2: float) -> Moment:
    """Returns Adam's update of the second moment, (v, d) -> b2 v + (1 - b2) d^2."""
    return lambda v, d: b2 * v + (1 - b2) * d**2


def adaptive_server(second_moment: Moment, server_lr, b1, tau, v0=0.0) -> Server:
    """Returns the server of an adaptive method, from its elementwise update of the second moment, which starts at v0.

    m <- b1 m + (1 - b1) d,   v <- second_moment(v, d),   x <- x + server_lr m / (sqrt(v) + tau)
    """

    def init(params):
        return Moments(tree.zeros_like(params), tree.map(lambda x: jnp.full_like(x, v0), params))

    def step(params, state, total, round):
        d = total["delta"].value
        m = tree.lerp(1 - b1, state.m, d)
        v = tree.map(second_moment, state.v, d)
        ascent = tree.map(lambda m, v: m / (jnp.sqrt(v) + tau), m, v)
        return tree.axpy(server_lr, ascent, params), Moments(m, v)

    return Server(init, step, lambda node: isinstance(node, Moments))


@ALGORITHMS.register(
    "fedadam", paper="reddi2021adaptive", instances=("fedadam:server_lr=0.1",), asynchronous=True, **facts(server="3")
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
      tau: degree of adaptivity, added outside the root.
      v0: initial second moment (the paper starts at tau^2 or above).

    Source: https://arxiv.org/abs/2003.00295.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("fedadam:server_lr=0.4")
      {'model': [5.572, 4.16, 3.244]}
    """
    return fedavg_with(adaptive_server(adam_moment(b2), server_lr, b1, tau, v0), solve, weighting)


def yogi_moment(b2: float) -> Moment:
    """Returns Yogi's update of the second moment, (v, d) -> v - (1 - b2) d^2 sign(v - d^2)."""
    return lambda v, d: v - (1 - b2) * d**2 * jnp.sign(v - d**2)


@ALGORITHMS.register("fedyogi", like="fedadam", instances=("fedyogi:server_lr=0.1",))
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

    The other rules and the parameters are the same as FedAdam's. Source: https://arxiv.org/abs/2003.00295.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("fedyogi:server_lr=0.5")
      {'model': [5.264, 3.729, 3.026]}
    """
    return fedavg_with(adaptive_server(yogi_moment(b2), server_lr, b1, tau, v0), solve, weighting)


def adagrad_server(server_lr, b1, tau, v0=0.0) -> Server:
    """Returns FedAdagrad's server; its sum of squares is not a moment that averaging may reset."""
    return adaptive_server(lambda v, d: v + d**2, server_lr, b1, tau, v0)._replace(resettable=core.nothing_resettable)


@ALGORITHMS.register("fedadagrad", like="fedadam")
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

    Other rules and parameters are FedAdam's; server_lr and tau are Flower's. Source: https://arxiv.org/abs/2003.00295.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("fedadagrad:server_lr=0.5")
      {'model': [5.25, 4.47, 4.027]}
    """
    return fedavg_with(adagrad_server(server_lr, b1, tau, v0), solve, weighting)
