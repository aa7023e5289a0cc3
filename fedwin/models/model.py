"""What the toolkit asks of a network."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from fedwin.core import Variables


class Output(NamedTuple):
    """logits: [B, C] or [B, T, V]; features: the input of the classifier layer; stats: updated statistics."""

    logits: jax.Array
    features: Any
    stats: Any = ()


class Model(NamedTuple):
    """A network as pure functions.

    init: key -> Variables.
    apply: (Variables, batch, key, train) -> Output; batch['x'] is normalised input, key drives dropout.
    classifier: (params, features) -> logits, the last layer alone; None where a model can't be split.
    classifier_path: keys that lead to the classifier's subtree in params, e.g. ('classifier',).
    name, num_classes: for messages and checks.
    """

    init: Callable[[jax.Array], Variables]
    apply: Callable[..., Output]
    classifier: Callable | None
    classifier_path: tuple[str, ...]
    name: str
    num_classes: int
