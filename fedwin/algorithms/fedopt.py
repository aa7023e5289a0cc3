"""FedOpt: the server passes the clients' mean step to an optimizer.

The optimizer is initialized once, and its state persists for the whole run. FedAdam, FedYogi and FedAdagrad are the
paper's rules; optax's optimizers correct the bias or start from other accumulators.
"""

from typing import Literal

import optax

from fedwin import core, local, tree
from fedwin.algorithms.common import Server, Weighting, fedavg_with
from fedwin.algorithms.fedadam import adagrad_server, adam_moment, adaptive_server, yogi_moment
from fedwin.algorithms.registry import ALGORITHMS, facts
from fedwin.errors import UserError
from fedwin.registry.ranges import Decay, NonNegative, Positive

Optimizer = Literal["sgd", "momentum", "adam", "yogi", "adagrad"]


def optax_server(optimizer: optax.GradientTransformation) -> Server:
    """Returns a server that applies an optax transformation to the pseudo-gradient sum_i p_i (x - y_i)."""

    def step(params, state, total, round):
        updates, state = optimizer.update(tree.scale(-1, total["delta"].value), state, params)
        return tree.add(params, updates), state

    return Server(optimizer.init, step, lambda node: isinstance(node, optax.ScaleByAdamState))


def named_server(optimizer, server_lr, momentum, nesterov, b1, b2, eps=None, bias_correction=True) -> Server:
    """Returns a server by the name of its optimizer, or with an optax transformation; arguments as for `fedopt`."""
    if isinstance(optimizer, optax.GradientTransformation):
        return optax_server(optimizer)
    eps = {"adagrad": 0.01}.get(optimizer, 0.1) if eps is None else eps
    if optimizer == "adagrad":
        # optax's Adagrad adds eps inside the root and starts v at 0.1.
        return adagrad_server(server_lr, 0.0, eps)
    if optimizer in ("adam", "yogi") and not bias_correction:
        moment = adam_moment if optimizer == "adam" else yogi_moment
        return adaptive_server(moment(b2), server_lr, b1, eps)
    if optimizer in ("sgd", "momentum"):
        return optax_server(optax.sgd(server_lr, momentum if optimizer == "momentum" else None, nesterov))
    return optax_server(getattr(optax, optimizer)(server_lr, b1, b2, eps))


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
    asynchronous=True,
    **facts(server="1 + optimizer"),
)
def fedopt(
    setting: core.Setting,
    solve: local.Solver,
    *,
    optimizer: Optimizer | optax.GradientTransformation = "sgd",
    server_lr: Positive = 1.0,
    momentum: Decay | None = None,
    nesterov: bool = False,
    b1: Decay = 0.9,
    b2: Decay = 0.99,
    eps: NonNegative | None = None,
    bias_correction: bool = True,
    weighting: Weighting = "samples",
) -> core.Algorithm:
    """FedOpt: x <- x - SERVEROPT(Delta), with optax's rules except for Adagrad.

        Delta = sum_i p_i (x - y_i),   x <- x - SERVEROPT(Delta)

    Args:
      optimizer: 'sgd', 'momentum', 'adam', 'yogi', 'adagrad' (v <- v + Delta^2, step Delta / (sqrt(v) + eps)), or an
        optax transformation (with its own learning rate).
      server_lr: learning rate of the server optimizer.
      momentum: beta of 'momentum'; none = 0.9.
      nesterov: Nesterov's form of 'momentum'.
      b1: first-moment decay of 'adam' and 'yogi'.
      b2: second-moment decay of 'adam' and 'yogi'.
      eps: added to the square root, not inside it; none = 0.1 ('adam', 'yogi') or 0.01 ('adagrad').
      bias_correction: false replaces 'adam' and 'yogi' with the uncorrected rules of Adaptive Federated Optimization.

    Raises:
      UserError: when another optimizer is given a momentum.

    Source: Reddi et al., Adaptive Federated Optimization, 2021, https://arxiv.org/abs/2003.00295.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("fedopt:optimizer=adam,server_lr=0.5")
      {'model': [5.383, 4.214, 3.471]}
      >>> testing.run_rounds("fedopt:optimizer=sgd") == testing.run_rounds("fedavg")
      True
    """
    if optimizer != "momentum" and (momentum is not None or nesterov):
        raise UserError("fedopt: momentum and nesterov are those of optimizer=momentum; set it, or leave them out.")
    momentum = 0.9 if momentum is None else momentum
    server = named_server(optimizer, server_lr, momentum, nesterov, b1, b2, eps, bias_correction)
    return fedavg_with(server, solve, weighting)
