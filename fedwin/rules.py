"""Local update rules: turn a mini-batch gradient into the direction and the displacement of a local step.

A rule is a function `rule(grad, step) -> RuleOutput`, where `grad(params)` returns the mini-batch Gradient at `params`.
The solver (fedwin.local.Solver) then takes the step

    y <- y - lr * optimizer(direction + weight_decay * y) + displacement.

The displacement is not scaled by the learning rate (the heavy-ball family uses it); it may be None. Everything else
belongs in the direction.

>>> import jax.numpy as jnp
>>> square = lambda y: Gradient(2 * y)  # the gradient of y^2, at y = 3
>>> step = Step(jnp.float32(3), jnp.float32(1), None, None, j=0, steps=4.0, lr=0.1, weight_decay=0.0)
>>> direction = lambda rule: float(rule(square, step).direction)
>>> direction(sgd), direction(shift(1.0)), direction(shift(lambda s: s.steps)), direction(mix(0.25, jnp.float32(1)))
(6.0, 7.0, 10.0, 2.25)
>>> direction(proximal(0.5)), direction(svrg(jnp.float32(1), 0.5))
(7.0, 4.5)
>>> output = heavy_ball(lambda s: jnp.float32(0.5), nesterov=True)(square, step)
>>> float(output.direction), float(output.displacement)
(7.0, 0.5)
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import jax

from fedwin import tree
from fedwin.tree import PyTree


class Step(NamedTuple):
    """Local step j = 0, 1, ..., J - 1 as a rule sees it.

    Attributes:
      params: y before the step.
      start: the model that local training started from.
      batch: the mini-batch, augmented once.
      key: PRNG key of the step, shared by all gradients that the step takes.
      j: index of the step, int32 [].
      steps: J_i, the number of steps that the client actually takes, float [].
      lr: client learning rate of the round, float [].
      weight_decay: float, 0 where weight decay is part of the loss.
      carry: the state carried from step to step (local.Solver's carry), a pytree.
    """

    params: PyTree
    start: PyTree
    batch: PyTree
    key: jax.Array
    j: jax.Array
    steps: jax.Array
    lr: jax.Array
    weight_decay: float
    carry: PyTree = ()


class Gradient(NamedTuple):
    """A mini-batch gradient, with the loss and the statistics of the same forward pass.

    Attributes:
      value: the gradient, like params.
      loss: mean over the batch, float [].
      stats: updated model statistics.
    """

    value: PyTree
    loss: jax.Array | None = None
    stats: PyTree = ()


class RuleOutput(NamedTuple):
    """Result of a rule.

    Attributes:
      direction: like params; the optimizer and the learning rate apply to it.
      displacement: like params, added to the model unscaled; None for none.
      gradient: the Gradient whose value, loss and statistics are recorded, by convention the step's first one.
      carry: replaces Step.carry; None leaves it unchanged.
    """

    direction: PyTree
    displacement: PyTree | None
    gradient: Gradient
    carry: PyTree = None


GradientFn = Callable[[PyTree], Gradient]


class Rule(Protocol):
    """Signature of a rule: (grad, step) -> RuleOutput."""

    def __call__(self, grad: GradientFn, s: Step, /) -> RuleOutput: ...


def sgd(grad: GradientFn, s: Step) -> RuleOutput:
    """Plain SGD.

    direction = g(y)
    """
    g = grad(s.params)
    return RuleOutput(g.value, None, g)


def shift(c) -> Rule:
    """Returns SGD with a term added to the gradient (SCAFFOLD, AdaBest, FedDyn's linear term).

        direction = g(y) + c

    Args:
      c: like params, or a function Step -> like params.
    """

    def rule(grad: GradientFn, s: Step) -> RuleOutput:
        g = grad(s.params)
        return RuleOutput(tree.add(g.value, c(s) if callable(c) else c), None, g)

    return rule


def mix(a, m, inner: Rule = sgd) -> Rule:
    """Returns a rule with a convex combination of the gradient and a momentum (FedCM).

        direction = a inner + (1 - a) m

    Args:
      a: weight of the gradient, in [0, 1].
      m: like params, or a function Step -> like params (FedCM divides by lr J).
      inner: the rule whose direction is combined with the momentum, by default the gradient g(y).
    """

    def rule(grad: GradientFn, s: Step) -> RuleOutput:
        output = inner(grad, s)
        return output._replace(direction=tree.lerp(1 - a, output.direction, m(s) if callable(m) else m))

    return rule


def proximal(mu, center=None, inner: Rule = sgd) -> Rule:
    """Returns a rule with a quadratic pull toward a center (FedProx, FedDyn, FedACG).

        direction = inner + mu (y - center)

    Args:
      mu: strength of the pull.
      center: like params; None is the model that local training started from.
      inner: the rule that the pull is added to.
    """

    def rule(grad: GradientFn, s: Step) -> RuleOutput:
        output = inner(grad, s)
        pull = tree.sub(s.params, s.start if center is None else center)
        return output._replace(direction=tree.axpy(mu, pull, output.direction))

    return rule


def heavy_ball(move: Callable[[Step], PyTree], nesterov: bool = False) -> Rule:
    """Returns SGD with a displacement that is not scaled by the learning rate (GHB, LOCAL-GHB, FedHBM).

        y <- y - lr g(y) + move(step)           or, with Nesterov's form,
        y <- y - lr g(y + move(step)) + move(step)

    Args:
      move: Step -> displacement, like params.
      nesterov: take the gradient at y + move.
    """

    def rule(grad: GradientFn, s: Step) -> RuleOutput:
        displacement = move(s)
        if not nesterov:
            g = grad(s.params)
            return RuleOutput(g.value, displacement, g)
        g = grad(tree.add(s.params, displacement))
        # Weight decay belongs to where the gradient is taken; the solver adds it at y. Clipping bounds this part, too.
        return RuleOutput(tree.axpy(s.weight_decay, displacement, g.value), displacement, g)

    return rule


def svrg(anchor: PyTree, shift: PyTree) -> Rule:
    """Returns SGD with a variance-reduced gradient (MIME).

        direction = g(y) - g(anchor) + shift, both gradients on the same mini-batch

    Args:
      anchor: the model at which the control gradient is taken, like params.
      shift: the control gradient's mean, like params.
    """

    def rule(grad: GradientFn, s: Step) -> RuleOutput:
        g = grad(s.params)
        return RuleOutput(tree.add(tree.sub(g.value, grad(anchor).value), shift), None, g)

    return rule
