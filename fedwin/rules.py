"""Rules: what turns a mini-batch gradient into a local step.

A rule is a function `(grad, Step) -> (direction, displacement)`, where `grad(params)` is the mini-batch gradient at
`params`, and the step taken is

    y <- y - lr * optimiser(direction + weight_decay * y) + displacement.

Displacements move outside the learning rate (the heavy-ball family); everything else belongs into the direction.
"""

from typing import Any, NamedTuple

from fedwin import tree


class Step(NamedTuple):
    """What a rule may see of local step j = 0, 1, ..., J - 1.

    params: y before the step; start: the model that local training began from; batch, key: of this step (the batch is
    augmented once, the key serves every gradient of the step); j: int32 []; steps: float [], the true J_i;
    lr: float [], the client learning rate of this round; weight_decay: float, 0 where it is part of the loss.
    """

    params: Any
    start: Any
    batch: Any
    key: Any
    j: Any
    steps: Any
    lr: Any
    weight_decay: Any


def sgd(grad, s: Step):
    """direction = g(y)."""
    return grad(s.params), None


def shift(c):
    """direction = g(y) + c; `c` may be a function of the Step (SCAFFOLD, AdaBest, FedDyn's linear term)."""

    def rule(grad, s: Step):
        return tree.add(grad(s.params), c(s) if callable(c) else c), None

    return rule


def mix(a, m):
    """direction = a g(y) + (1 - a) m; `m` may be a function of the Step (FedCM divides by lr J)."""

    def rule(grad, s: Step):
        return tree.lerp(1 - a, grad(s.params), m(s) if callable(m) else m), None

    return rule


def proximal(mu, centre=None, inner=sgd):
    """direction = inner + mu (y - centre); the centre is the model that training started from unless given."""

    def rule(grad, s: Step):
        direction, displacement = inner(grad, s)
        pull = tree.sub(s.params, s.start if centre is None else centre)
        return tree.axpy(mu, pull, direction), displacement

    return rule


def heavy_ball(move, nesterov=False):
    """y <- y - lr g(y) + move(Step); Nesterov: g at y + move."""

    def rule(grad, s: Step):
        displacement = move(s)
        if not nesterov:
            return grad(s.params), displacement
        direction = grad(tree.add(s.params, displacement))
        # Weight decay belongs to where the gradient is taken; the solver adds it at y.
        return tree.axpy(s.weight_decay, displacement, direction), displacement

    return rule


def svrg(anchor, shift):
    """direction = g(y) - g(anchor) + shift, both gradients on the same mini-batch."""

    def rule(grad, s: Step):
        return tree.add(tree.sub(grad(s.params), grad(anchor)), shift), None

    return rule
