"""Rules: what turns a mini-batch gradient into a local step.

A rule is a function `(grad, Step) -> (direction, displacement, seen)`, where `grad(params)` is the mini-batch Gradient
at `params`, and the step taken is

    y <- y - lr * optimiser(direction + weight_decay * y) + displacement.

Displacements move outside the learning rate (the heavy-ball family) and may be None; everything else belongs into the
direction. `seen` is the Gradient whose loss and statistics count, the first one of the step.
"""

from typing import Any, NamedTuple

from fedwin import tree


class Step(NamedTuple):
    """What a rule may see of local step j = 0, 1, ..., J - 1.

    Attributes:
      params: y before the step.
      start: the model that local training began from.
      batch: of this step, augmented once.
      key: of this step; it serves every gradient of the step.
      j: int32 [].
      steps: the true J_i, float [].
      lr: the client learning rate of this round, float [].
      weight_decay: float, 0 where it is part of the loss.
    """

    params: Any
    start: Any
    batch: Any
    key: Any
    j: Any
    steps: Any
    lr: Any
    weight_decay: Any


class Gradient(NamedTuple):
    """A mini-batch gradient and what was seen on the way.

    Attributes:
      value: the gradient, like params.
      loss: mean over the batch, [].
      stats: updated model statistics.
    """

    value: Any
    loss: Any = None
    stats: Any = ()


def sgd(grad, s: Step):
    """direction = g(y)."""
    g = grad(s.params)
    return g.value, None, g


def shift(c):
    """direction = g(y) + c; `c` may be a function of the Step (SCAFFOLD, AdaBest, FedDyn's linear term)."""

    def rule(grad, s: Step):
        g = grad(s.params)
        return tree.add(g.value, c(s) if callable(c) else c), None, g

    return rule


def mix(a, m):
    """direction = a g(y) + (1 - a) m; `m` may be a function of the Step (FedCM divides by lr J)."""

    def rule(grad, s: Step):
        g = grad(s.params)
        return tree.lerp(1 - a, g.value, m(s) if callable(m) else m), None, g

    return rule


def proximal(mu, centre=None, inner=sgd):
    """direction = inner + mu (y - centre); the centre is the model that training started from unless given."""

    def rule(grad, s: Step):
        direction, displacement, g = inner(grad, s)
        pull = tree.sub(s.params, s.start if centre is None else centre)
        return tree.axpy(mu, pull, direction), displacement, g

    return rule


def heavy_ball(move, nesterov=False):
    """y <- y - lr g(y) + move(Step); Nesterov: g at y + move."""

    def rule(grad, s: Step):
        displacement = move(s)
        if not nesterov:
            g = grad(s.params)
            return g.value, displacement, g
        g = grad(tree.add(s.params, displacement))
        # Weight decay belongs to where the gradient is taken; the solver adds it at y.
        return tree.axpy(s.weight_decay, displacement, g.value), displacement, g

    return rule


def svrg(anchor, shift):
    """direction = g(y) - g(anchor) + shift, both gradients on the same mini-batch."""

    def rule(grad, s: Step):
        g = grad(s.params)
        return tree.add(tree.sub(g.value, grad(anchor).value), shift), None, g

    return rule
