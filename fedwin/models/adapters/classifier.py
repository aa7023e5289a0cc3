"""The classifier layer of an external network: its path, its computation, and checks of the network's logits."""

from typing import Any

import jax
import jax.numpy as jnp

from fedwin import tree
from fedwin.errors import UserError


def check_input_shape(name, input_shape) -> tuple[int, ...]:
    """Returns the shape of one example as a tuple.

    Raises:
      UserError: for anything else.
    """
    try:
        shape = tuple(int(length) if length == int(length) else -1 for length in input_shape)
    except (TypeError, ValueError):
        shape = (-1,)
    if min(shape, default=0) < 0:
        raise UserError(f"{name}: input_shape={input_shape!r} must be the shape of one example, such as (28, 28, 1).")
    return shape


def subtree(params, path):
    """Returns params[path[0]][path[1]]..."""
    for key in path:
        params = params[key]
    return params


def linear(params, features, weight: str, bias: str, dtype: Any = jnp.float32):
    """Returns features @ params[weight] + params[bias], if there is a bias, in at least float32."""
    logits = jnp.asarray(features, dtype) @ jnp.asarray(params[weight], dtype)
    if bias in params:
        logits = logits + jnp.asarray(params[bias], dtype)
    return tree.at_least_float32(logits)


def is_linear(params, path, weight: str, width: int) -> bool:
    """Whether params contain a matrix with `width` columns at a path."""
    try:
        leaf = subtree(params, path)[weight]
    except (KeyError, TypeError):
        return False
    return bool(path) and len(leaf.shape) == 2 and leaf.shape[1] == width


def locate_classifier(name: str, params, chosen, layers, width: int) -> tuple[str, ...]:
    """Returns the classifier's path in params, () if there is no such layer.

    Args:
      chosen: the path that the user gave; None takes the last of `layers` that is as wide as the logits.
      layers: (path, width) of the linear layers in the order of their calls.

    Raises:
      UserError: when the chosen path is not in params.
    """
    if chosen is None:
        candidates = [path for path, features in layers if features == width]
        return tuple(candidates[-1]) if candidates else ()
    try:
        subtree(params, chosen)
    except (KeyError, TypeError):
        keys = ", ".join(map(repr, params))
        raise UserError(
            f"{name}: classifier_path={tuple(chosen)} is not in the parameters; they begin with {keys}."
        ) from None
    return tuple(chosen)


def num_outputs(name: str, logits, num_classes: int | None) -> int:
    """Returns the number of outputs of a network from the shapes of its logits for one example.

    Raises:
      UserError: when the logits are not numbers [B, C] or [B, T, V], or not num_classes wide, if that is given.
    """
    if not isinstance(logits, jax.ShapeDtypeStruct):
        raise UserError(f"{name} returns a {type(logits).__name__}; it must return logits [B, C] or [B, T, V].")
    if logits.ndim not in (2, 3) or not jnp.issubdtype(logits.dtype, jnp.floating):
        raise UserError(
            f"{name} returns {logits.dtype} of shape {logits.shape} for one example; it must return floating-point "
            "logits [B, C] or [B, T, V]."
        )
    width = logits.shape[-1]
    if num_classes is not None and width != num_classes:
        raise UserError(f"{name} has {width} outputs, the data {num_classes} classes.")
    return width


def traced_shapes(name: str, input_shape, function, *args):
    """Returns the shapes of a network function's results, without computing them.

    Raises:
      UserError: when the function cannot be traced.
    """
    try:
        return jax.eval_shape(function, *args)
    except UserError:
        raise
    except Exception as error:  # an external network may raise anything
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        what = f"{name} does not take examples of shape {tuple(input_shape)}, perhaps too small or of another rank"
        raise UserError(f"{what}: {reason}") from error
