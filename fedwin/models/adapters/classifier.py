"""The last layer of a foreign network: where it is, what it computes, and what the network must return."""

from typing import Any

import jax
import jax.numpy as jnp

from fedwin.errors import UserError


def at_least_float32(x):
    """Returns x in float32, or as it is where it is wider."""
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def check_input_shape(name, input_shape) -> tuple[int, ...]:
    """Returns the shape of one example; raises UserError unless it is made of integers >= 0."""
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
    """features @ params[weight] + params[bias], computed in dtype, returned in at least float32; bias may be absent."""
    logits = jnp.asarray(features, dtype) @ jnp.asarray(params[weight], dtype)
    if bias in params:
        logits = logits + jnp.asarray(params[bias], dtype)
    return at_least_float32(logits)


def is_linear(params, path, weight: str) -> bool:
    """Whether params hold a matrix of that name at `path`."""
    try:
        leaf = subtree(params, path)[weight]
    except (KeyError, TypeError):
        return False
    return bool(path) and len(leaf.shape) == 2


def locate_classifier(name: str, params, chosen, seen, width: int) -> tuple[str, ...]:
    """Returns the classifier's path in params.

    Args:
      name: the network's, for the error line.
      params: its parameters, or their shapes.
      chosen: the path that the user gave, None to take the last layer of `seen` that is as wide as the logits.
      seen: (path, width) of the linear layers, in the order of their calls.
      width: of the logits.

    Raises:
      UserError: the chosen path leads nowhere.
    """
    if chosen is None:
        found = [path for path, features in seen if features == width]
        return tuple(found[-1]) if found else ()
    try:
        subtree(params, chosen)
    except (KeyError, TypeError):
        known = ", ".join(map(repr, params))
        raise UserError(
            f"{name}: classifier_path={tuple(chosen)} is not in the parameters; they begin with {known}."
        ) from None
    return tuple(chosen)


def num_outputs(name: str, logits, num_classes: int | None) -> int:
    """Returns how many outputs a network has, given the shape of its logits.

    Raises:
      UserError: the network returns something other than [B, C] or [B, T, V] numbers, or not num_classes of them.
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


def untraceable_error(name: str, input_shape, error: Exception) -> UserError:
    """Returns the UserError for a network that cannot be traced on examples of input_shape."""
    reason = str(error).strip().partition("\n")[0] or type(error).__name__
    return UserError(
        f"{name} does not take examples of shape {tuple(input_shape)}, perhaps too small or of another rank: {reason}"
    )
