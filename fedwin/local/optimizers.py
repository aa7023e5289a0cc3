"""Local optimizers at unit learning rate, and those that decay weights themselves: AdamW and Muon."""

import dataclasses
from collections.abc import Callable

import jax.numpy as jnp
import optax
from optax.contrib import MuonDimensionNumbers

from fedwin import tree
from fedwin.errors import UserError
from fedwin.local.solver import Solver


def is_sgd(optimizer) -> bool:
    """Returns whether an optimizer is linear in gradients and ignores parameters, like SGD with or without momentum.

    Example:
      >>> is_sgd(optax.sgd(0.1, momentum=0.9)), is_sgd(optax.adam(0.1))
      (True, False)
    """

    def updates(gradients, at):
        state, out = optimizer.init(at), []
        for g in gradients:
            update, state = optimizer.update(g, state, at)
            out.append(update)
        return jnp.stack(out)

    g, h = jnp.array([1.0, -2.0, 0.5]), jnp.array([3.0, 0.25, 1.0])
    separate = updates(g, jnp.ones(())) + updates(h, jnp.full((), -3.0))
    return bool(jnp.allclose(separate, updates(g + h, jnp.full((), 5.0)), rtol=1e-4))


def has_memory(optimizer) -> bool:
    """Returns whether a second unit gradient gives a different update than the first, as with momentum."""
    gradient = jnp.ones(())
    first, state = optimizer.update(gradient, optimizer.init(gradient), gradient)
    second, _ = optimizer.update(gradient, state, gradient)
    return not bool(first == second)


def check_plain_sgd(solve: Solver, method: str, used: str) -> None:
    """Raises UserError if a solver has an optimizer or momentum, which a method would replace with its own, `used`."""
    if not is_sgd(solve.optimizer) or has_memory(solve.optimizer):
        raise UserError(f"{method}: clients use {used}; leave client_optimizer=sgd and client_momentum=0.")


def matrices(params):
    """Returns a tree of MuonDimensionNumbers with the last axis as output; None (Adam) for fewer than two axes."""

    def axes(x):
        return MuonDimensionNumbers(tuple(range(x.ndim - 1)), x.ndim - 1) if x.ndim > 1 else None

    return tree.map(axes, params)


def muon(weight_decay: float = 0.0, matrix_lr: float = 1.0, **options) -> optax.GradientTransformation:
    """Returns Muon at unit learning rate: `optax.contrib.muon` for parameters of two or more axes, NAdam for others.

        M <- beta M + (1 - beta) g,   y <- y - lr matrix_lr (sqrt(max(1, outputs / inputs)) U V^T + weight_decay y)

    U V^T are singular vectors of Nesterov's beta M + (1 - beta) g, after five Newton-Schulz steps; optax corrects the
    bias of step t: beta M / (1 - beta^(t+1)) + (1 - beta) g / (1 - beta^t). Jordan's first and last layers use Adam.

    Args:
      weight_decay: decoupled weight decay of all parameters.
      matrix_lr: learning rate of matrices divided by that of other parameters.
      **options: options of `optax.contrib.muon`.

    Source: Jordan, Muon: An optimizer for hidden layers in neural networks, 2024, https://kellerjordan.github.io/posts/muon.
    """
    return optax.contrib.muon(
        matrix_lr,
        weight_decay=weight_decay,
        adam_weight_decay=weight_decay,
        adam_learning_rate=1.0,
        muon_weight_dimension_numbers=matrices,
        **options,
    )


def with_decoupled_decay(solve: Solver, optimizer: Callable[[float], optax.GradientTransformation]) -> Solver:
    """Returns the solver with an optimizer that decays weights itself.

    Args:
      optimizer: weight decay -> optimizer at unit learning rate. The decay is the solver's, or 0 if it is part of the
        loss.
    """
    decoupled = 0.0 if solve.wd_in_loss else solve.weight_decay
    return dataclasses.replace(solve, optimizer=optimizer(decoupled), weight_decay=solve.weight_decay - decoupled)


def with_optimizer(solve: Solver, name: str, momentum: float) -> Solver:
    """Returns the solver with an optax optimizer given by its name.

    adamw and muon decay weights themselves, decoupled from moments; for the others lambda y is part of the direction.

    Args:
      name: 'sgd', 'adam', 'adamw', 'adagrad', 'rmsprop', 'yogi' or 'muon'.
      momentum: momentum of 'sgd'.
    """
    if name == "muon":
        return with_decoupled_decay(solve, muon)
    if name == "adamw":
        return with_decoupled_decay(solve, lambda decay: optax.adamw(1.0, weight_decay=decay))
    optimizer = optax.sgd(1.0, momentum or None) if name == "sgd" else getattr(optax, name)(1.0)
    return dataclasses.replace(solve, optimizer=optimizer)
