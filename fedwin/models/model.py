"""What the toolkit asks of a network."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedwin.core import Variables
from fedwin.errors import UserError
from fedwin.registry import Registry


class Output(NamedTuple):
    """What a network returns.

    Attributes:
      logits: [B, C] or [B, T, V].
      features: the input of the classifier layer.
      stats: updated statistics.
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
      init: key -> Variables.
      apply: (Variables, batch, key, train) -> Output; batch['x'] is normalised input, key drives dropout.
      classifier: (params, features) -> logits, the last layer alone; None where a model can't be split.
      classifier_path: keys that lead to the classifier's subtree in params, e.g. ('classifier',).
      name: for messages.
      num_classes: how many outputs it has.
    """

    init: Callable[[jax.Array], Variables]
    apply: Callable[..., Output]
    classifier: Callable | None
    classifier_path: tuple[str, ...]
    name: str
    num_classes: int


# Compute types. Parameters are float32, in float64 float64 (needs jax_enable_x64).
PRECISION = {"float32": jnp.float32, "bfloat16": jnp.bfloat16, "float64": jnp.float64}


def compute_dtype(dtype: Any):
    """Returns the dtype of that name, or the floating-point dtype itself.

    >>> compute_dtype("bfloat16")
    dtype(bfloat16)

    Raises:
      UserError: when it is not a floating-point type.
    """
    try:
        found = jnp.dtype(dtype)
    except TypeError:
        found = None
    if found is None or not jnp.issubdtype(found, jnp.floating):
        raise UserError(f"dtype={dtype} must be one of {', '.join(PRECISION)}.")
    return found


# usual: (shape of one example, classes) that a network is known for; parameters: how many it has for these.
MODELS = Registry(
    "model",
    columns={"parameters": "{parameters}", "for": "{usual[0]} to {usual[1]}"},
    common={
        "dtype": "what is computed in: float32, bfloat16 or float64",
        "groups": "of GroupNorm",
        "predict": "the token after every position ('all') or after the last one ('last')",
    },
    parameters="?",
    usual=("?", "?"),
)
