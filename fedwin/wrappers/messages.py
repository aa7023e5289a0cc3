"""Parts of a client's message: which ones are steps, and functions of the values that are sent."""

from collections.abc import Callable
from typing import NamedTuple

import jax

from fedwin import core, tree
from fedwin.errors import UserError
from fedwin.tree import PyTree

_MARKED = (core.Mean, core.DerivedFromStep)


class ClippedStep(NamedTuple):
    """A client's clipped step in a private run, in place of its MeanStep: the server adds noise to the sum.

    Attributes:
      value: the step, a pytree like the parameters.
    """

    value: PyTree


def check_not_private(wrapper: str, message) -> None:
    """Rejects wrappers that would change a step after --wrap=dp clipped it."""
    if tree.nodes(message, ClippedStep):
        raise UserError(f"{wrapper} changes steps that dp has clipped already; give --wrap={wrapper} before --wrap=dp.")


def step_of(wrapper: str, message, whole: bool = False) -> core.MeanStep:
    """Returns the mean step of a client's message, for a wrapper that changes it.

    Args:
      whole: whether the wrapper needs the whole model in every round.

    Raises:
      UserError: when clients send no mean step, or only a part of the model.
    """
    step = core.mean_step_of(message)
    if step is None:
        raise UserError(f"{wrapper}: clients of this algorithm send no mean step; omit --wrap={wrapper}.")
    if whole and isinstance(step, core.PartialStep):
        raise UserError(
            f"{wrapper}: clients of this algorithm send a part of the model in each round, and {wrapper} needs whole "
            f"steps; omit --wrap={wrapper}."
        )
    return step


def _is_marked(node) -> bool:
    return isinstance(node, _MARKED)


def parts_that(message, predicate: Callable) -> list[str]:
    """Returns the names of the parts of a message that contain a node with a property.

    Example:
      >>> parts_that({"a": core.DerivedFromStep(1.0), "b": 2.0}, lambda node: not _is_marked(node))
      ["'b'"]
    """
    nodes = jax.tree_util.tree_leaves_with_path(message, is_leaf=_is_marked)
    return sorted({jax.tree_util.keystr(path[:1]).strip("[]") for path, node in nodes if predicate(node)})


def check_nothing_derived(wrapper: str, message) -> None:
    """Rejects messages with a part that is computed from the step before the wrapper changes it, or a ClippedStep."""
    check_not_private(wrapper, message)
    derived = parts_that(message, lambda node: isinstance(node, core.DerivedFromStep))
    if derived:
        raise UserError(
            f"{wrapper}: the server of this algorithm computes {', '.join(derived)} from every client's exact step, "
            f"which it would not receive; omit --wrap={wrapper}."
        )


def map_values(function: Callable, message):
    """Returns a message with a function applied to every array that is sent, except the weights of means.

    Example:
      >>> map_values(lambda x: 2 * x, {"a": core.Mean(1.0, 5.0), "b": 2.0})
      {'a': Mean(total=2.0, weight=5.0), 'b': 4.0}
    """

    def one(node):
        if isinstance(node, core.Mean):
            return node._replace(total=jax.tree.map(function, node.total))
        return jax.tree.map(function, node)

    return jax.tree.map(one, message, is_leaf=lambda node: isinstance(node, core.Mean))
