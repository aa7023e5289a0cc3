"""Registers the networks of this package, which are flax modules, and checks their sizes."""

import functools
import inspect
import math
from collections.abc import Callable
from typing import Annotated, Literal

import jax
import jax.numpy as jnp
from flax import linen as nn

from fedwin.errors import UserError
from fedwin.models.adapters.flax import from_flax
from fedwin.models.model import MODELS, Model, compute_dtype
from fedwin.registry.ranges import PositiveInt, Range, check_values

# Widths: two adjacent layers of the largest have 4 TiB of weights.
Width = Annotated[int, Range(1, 1 << 20)]
# Numbers of layers: they are traced and compiled one by one, which takes minutes for a thousand.
Depth = Annotated[int, Range(1, 1000)]
# Largest number of parameters, 64 GiB in float32; a run needs several copies (server, clients, observers).
LARGEST = 1 << 34

Examples = Literal["images", "tokens", "any"]
_RANKS: dict[Examples, tuple[int, str]] = {
    "images": (3, "images [height, width, channels]"),
    "tokens": (1, "rows of tokens [length]"),
}


def network(name: str, takes: Examples = "any", *, label: str = "", **registered) -> Callable[[Callable], Callable]:
    """Registers a function that returns a flax module as a network, with a parameter for the compute type.

        @network("mlp", parameters="199,210", usual=((28, 28, 1), 10))
        def mlp(input_shape, num_classes, *, hidden: Width = 200): return MLP(...)

    The module has an attribute `dtype`, layers of this package, and a last layer named `classifier`.

    Args:
      takes: 'images' [H, W, C], 'tokens' [T], or 'any' examples.
      label: name of the model, in which '{variant}' stands for an option; '' for `name`.

    Returns:
      A decorator; the builder that it returns raises UserError for examples of another kind or too small for the
      network, and for a network that would be too large.
    """

    def register(make: Callable) -> Callable[..., Model]:
        signature = inspect.signature(make)
        options = {p.name: p.default for p in signature.parameters.values() if p.kind is p.KEYWORD_ONLY}

        @functools.wraps(make)
        def builder(input_shape, num_classes, *, dtype: str = "float32", **given) -> Model:
            check_examples(name, takes, input_shape, num_classes)
            module = make(input_shape, num_classes, **given).clone(dtype=compute_dtype(dtype))
            input_dtype = jnp.int32 if takes == "tokens" else jnp.float32
            return build_network(
                (label or name).format(**options | given), module, input_shape, num_classes, input_dtype
            )

        dtype = inspect.signature(builder, follow_wrapped=False).parameters["dtype"]
        builder.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[*signature.parameters.values(), dtype], return_annotation=Model
        )
        return MODELS.register(name, builder, **registered)

    return register


def check_examples(name: str, takes: Examples, input_shape: tuple[int, ...], num_classes: int) -> None:
    """Raises UserError unless a network takes the examples."""
    check_values(name, PositiveInt, num_classes=num_classes)
    rank, description = _RANKS.get(takes, (len(input_shape), "examples that are not empty"))
    if len(input_shape) != rank or 0 in input_shape:
        raise UserError(f"{name} takes {description}, not examples of shape {input_shape}; choose another --model.")


def build_network(
    name: str, module: nn.Module, input_shape: tuple[int, ...], num_classes: int, input_dtype=jnp.float32
) -> Model:
    """Returns the Model of a flax module whose layers are those of this package and whose last one is `classifier`.

    Raises:
      UserError: when examples are too small for the network, or the network would be too large.
    """
    dtype = module.dtype  # type: ignore[attr-defined]
    model = from_flax(module, input_shape, num_classes, name=name, dtype=dtype, lower=False, input_dtype=input_dtype)
    parameters = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(jax.eval_shape(model.init, jax.random.key(0))))
    if parameters > LARGEST:
        raise UserError(
            f"{name} would have {parameters:,} parameters, {parameters / 2**28:,.0f} GiB; choose smaller layers."
        )
    return model


def widths_of(network: str, option: str, values: str | int) -> tuple[int, ...]:
    """Returns several widths from one option, in which they are joined by '-'.

    Raises:
      UserError: when one of them is not an integer >= 1.
    """
    texts = str(values).split("-")
    if not all(text.isascii() and text.isdecimal() and int(text) for text in texts):
        raise UserError(f"{network}: {option}={values} must be widths >= 1 joined by '-', such as 64-64.")
    return tuple(map(int, texts))


def check_groups(network: str, groups: int, *widths: int) -> None:
    """Raises UserError unless a number of groups of GroupNorm divides the widths of all layers."""
    common = math.gcd(*widths)
    if common % groups:
        raise UserError(
            f"{network}: groups={groups} must divide the channels of every normalized layer: a divisor of {common}."
        )
