"""Weighted means before the division: what clients send so that a sum over a cohort becomes a mean."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedwin import tree

PyTree = Any


class Mean(NamedTuple):
    """A weighted mean before the division: a sum that carries its weight, so that sums of it are sums.

        value = sum_i w_i x_i / sum_i w_i

    Attributes:
      total: sum of w_i x_i.
      weight: sum of w_i, [].
    """

    total: PyTree
    weight: jax.Array

    @property
    def value(self) -> PyTree:
        return tree.map(lambda x: x / self.weight.astype(x.dtype), self.total)


def mean(values: PyTree, weight) -> Mean:
    """Returns values as one client's part of a weighted mean.

    Args:
      values: x_i.
      weight: w_i, [].
    """
    return Mean(tree.map(lambda x: x * jnp.asarray(weight).astype(x.dtype), values), jnp.asarray(weight, float))


class MeanStep(Mean):
    """A Mean of the clients' steps y_i - x from the server model: what wrappers bound or average, under any key."""

    __slots__ = ()


class OfStep(NamedTuple):
    """A part of a message that follows from the client's step y_i - x alone, such as a plain sum of steps or of signs.

    A wrapper that bounds the step has bounded it, too; whatever else is in a message may hold anything.

    Attributes:
      value: the part.
    """

    value: PyTree


def mean_step(step: PyTree, weight) -> MeanStep:
    """Returns a client's step as its part of the cohort's mean step.

    Args:
      step: y_i - x.
      weight: w_i, [].
    """
    return MeanStep(*mean(step, weight))


def _is_mean_step(x) -> bool:
    return isinstance(x, MeanStep)


def mean_step_of(message: PyTree) -> MeanStep | None:
    """Returns the one mean step in a message, or None where there is none or more than one."""
    found = [x for x in jax.tree.leaves(message, is_leaf=_is_mean_step) if _is_mean_step(x)]
    return found[0] if len(found) == 1 else None


def with_mean_step(message: PyTree, step: Mean) -> PyTree:
    """Returns the message with its mean step replaced."""
    return jax.tree.map(lambda x: MeanStep(*step) if _is_mean_step(x) else x, message, is_leaf=_is_mean_step)
