"""The interface of networks (Model, Output), their compute types, and the registry MODELS."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedwin.core import Variables
from fedwin.errors import UserError
from fedwin.registry import Registry


class Output(NamedTuple):
    """The result of a network.

    Attributes:
      logits: [B, C], or [B, T, V] for sequences.
      features: the input of the classifier layer; () if it is unknown.
      stats: updated statistics, a pytree; () for a network without statistics.
    """

    logits: jax.Array
    features: Any
    stats: Any = ()


class Model(NamedTuple):
    """A network as pure functions.

    >>> import jax, jax.numpy as jnp
    >>> from fedwin.core import Variables
    >>> init = lambda key: Variables({"w": jnp.zeros((64, 10))})
    >>> def apply(variables, batch, key, train):
    ...     features = batch["x"].reshape(-1, 64)
    ...     return Output(features @ variables.params["w"], features)
    >>> model = Model(init, apply, None, (), "mine", 10)

    Attributes:
      apply: (Variables, batch, key, train) -> Output; batch['x'] is the normalized input, batch['mask'], if there is
        one, is 0 for padded rows, and key, which is None in evaluation, drives dropout.
      classifier: (params, features) -> logits, the last layer alone; None if the network cannot be split.
      classifier_path: keys of the classifier's subtree in params, e.g. ('classifier',); () if it is unknown.
    """

    init: Callable[[jax.Array], Variables]
    apply: Callable[..., Output]
    classifier: Callable | None
    classifier_path: tuple[str, ...]
    name: str
    num_classes: int


def compute_dtype(dtype: Any):
    """Returns a compute type, a floating-point dtype, given by name or as a dtype.

    Parameters are float32, except with float64, where they are float64 (needs jax_enable_x64).

    Raises:
      UserError: when it is not a floating-point type.
    """
    try:
        resolved = jnp.dtype(dtype)
    except Exception:  # NumPy parses lists of types in texts, and fails in many ways
        resolved = None
    if resolved is None or not jnp.issubdtype(resolved, jnp.floating):
        raise UserError(f"dtype={dtype} must be one of float32, bfloat16, float64.")
    return resolved


# usual: (shape of one example, number of classes) of the network's source; parameters: their number for these.
MODELS = Registry(
    "model",
    columns={"parameters": "{parameters}", "for": "{usual[0]} to {usual[1]}"},
    common={
        "input_shape": "shape of one example: [height, width, channels], or [length] of a sequence",
        "num_classes": "number of outputs",
        "dtype": "compute type: float32, bfloat16 or float64",
        "groups": "groups of GroupNorm",
        "layers": "number of blocks",
        "heads": "number of heads of the attention; must divide the width",
        "predict": "the token after every position ('all') or after the last one ('last')",
    },
    parameters="?",
    usual=("?", "?"),
)
