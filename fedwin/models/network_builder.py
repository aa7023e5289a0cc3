"""Builds the Model of a flax module of this package, and checks the sizes of networks."""

import math

import jax
import jax.numpy as jnp

from fedwin.errors import UserError
from fedwin.models.adapters.flax import from_flax
from fedwin.models.model import Model

# Largest width: two adjacent layers of this width have 4 TiB of weights.
WIDEST = 1 << 20
# Largest number of layers: they are traced and compiled one by one, which takes minutes for a thousand.
DEEPEST = 1000
# Largest number of parameters, 64 GiB in float32; a run needs several copies (server, clients, observers).
LARGEST = 1 << 34

_RANKS = {"images": ((3,), "images [height, width, channels]"), "tokens": ((1,), "rows of tokens [length]")}


def build_network(name: str, module, input_shape, num_classes: int, takes: str = "examples") -> Model:
    """Returns the Model of a flax module whose layers are those of this package and whose last one is `classifier`.

    Args:
      name: name of the model.
      module: the flax module, with its compute type in module.dtype.
      input_shape: shape of one example.
      num_classes: number of outputs.
      takes: 'images' [H, W, C], 'tokens' [T], or 'examples' of any shape.

    Returns:
      A Model.

    Raises:
      UserError: when examples are of another kind or too small for the network, or the network would be too large.
    """
    check_size(name, "num_classes", num_classes)
    input_shape = tuple(input_shape)
    ranks, description = _RANKS.get(takes, ((len(input_shape),), ""))
    if len(input_shape) not in ranks or 0 in input_shape:
        raise UserError(
            f"{name} takes {description or 'examples that are not empty'}, not examples of shape {input_shape}; choose "
            "another --model."
        )
    input_dtype = jnp.int32 if takes == "tokens" else jnp.float32
    options = dict(name=name, dtype=module.dtype, lower=False)
    model = from_flax(module, input_shape, num_classes, input_dtype=input_dtype, **options)
    parameters = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(jax.eval_shape(model.init, jax.random.key(0))))
    if parameters > LARGEST:
        raise UserError(
            f"{name} would have {parameters:,} parameters, {parameters / 2**28:,.0f} GiB; choose smaller layers."
        )
    return model


def check_size(network: str, option: str, value: int, most: int = WIDEST) -> int:
    """Returns a width or number of layers if a network can have it.

    >>> check_size("mlp", "hidden", 200)
    200

    Args:
      network: name of the network, for the message.
      option: name of the option.
      value: its value.
      most: the largest accepted value.

    Raises:
      UserError: when it is not an integer in 1..most.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UserError(f"{network}: {option}={value} must be an integer >= 1.")
    if value > most:
        reason = "weights between two such layers fill 4 TiB" if most == WIDEST else "layers are compiled one by one"
        raise UserError(f"{network}: {option}={value} must be at most {most}; {reason}.")
    return value


def check_sizes(network: str, option: str, values: str | int) -> tuple[int, ...]:
    """Returns several widths from one option, in which they are joined by '-'.

    >>> check_sizes("lenet5", "channels", "16-32")
    (16, 32)

    Args:
      network: name of the network, for the message.
      option: name of the option.
      values: its value; an integer for a single width.

    Raises:
      UserError: when one of them is not an integer >= 1, or too large.
    """
    texts = str(values).split("-")
    if not all(text.isascii() and text.isdecimal() for text in texts):
        raise UserError(f"{network}: {option}={values} must be widths >= 1 joined by '-', such as 64-64.")
    return tuple(check_size(network, option, int(text)) for text in texts)


def check_groups(network: str, groups: int, *widths: int) -> int:
    """Returns a number of groups of GroupNorm if it divides the widths of all layers.

    Args:
      network: name of the network, for the message.
      groups: number of groups.
      widths: channels of the normalized layers.

    Raises:
      UserError: when it does not divide them.
    """
    check_size(network, "groups", groups)
    common = math.gcd(*widths)
    if common % groups:
        raise UserError(
            f"{network}: groups={groups} must divide the channels of every normalized layer: a divisor of {common}."
        )
    return groups
