"""What the toolkit asks of a network."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from fedwin.core import Variables


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
