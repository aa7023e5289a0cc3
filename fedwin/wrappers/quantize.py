"""Stochastic quantization of what clients send."""

import itertools
import math
from typing import Annotated

import jax
import jax.numpy as jnp

from fedwin import core
from fedwin.errors import UserError
from fedwin.registry.ranges import Range
from fedwin.wrappers.base import WRAPPERS, Wrapper
from fedwin.wrappers.messages import check_nothing_derived, map_values

# Separates these draws from the others of a client's key.
TAG = 0x51534744
# A float32 has 24 significant bits: more levels than 2^15 would not be spaced evenly after the draw is added.
MOST_BITS = 16


def stochastic(x, key, bits: int):
    """Rounds every entry to one of the two nearest levels, at random, so that the expectation is the entry.

        Q(x) = (s / L) floor(L x / s + u),   s = max |x|,   L = 2^(bits - 1) - 1,   u uniform in [0, 1)

    Args:
      x: float array of any shape.
      bits: of an entry, 2 to 16.

    Returns:
      Q(x), like x.

    Example:
      >>> stochastic(jnp.array([0.0, 1.0, -0.5]), jax.random.key(0), bits=2).tolist()
      [0.0, 1.0, -1.0]
    """
    levels = 2 ** (bits - 1) - 1
    scale = jnp.max(jnp.abs(x))
    unit = x / jnp.where(scale > 0, scale, 1) * levels
    # The sum may round up to the next integer beyond the last level.
    drawn = jnp.clip(jnp.floor(unit + jax.random.uniform(key, x.shape, x.dtype)), -levels, levels)
    return drawn * (scale / levels)


def sent_bytes(leaf, bits: int) -> int:
    """Returns the bytes in which an array is sent: `bits` per entry and the scale, or as it is if that is less.

        min(ceil(n bits / 8) + b, n b),   n entries of b bytes

    Args:
      leaf: an array, or its shape and dtype.
      bits: of an entry.

    Example:
      >>> sent_bytes(jnp.zeros(100), bits=8), sent_bytes(jnp.zeros(100), bits=3), sent_bytes(jnp.zeros(1), bits=8)
      (104, 42, 4)
    """
    dense = leaf.size * leaf.dtype.itemsize
    if not jnp.issubdtype(leaf.dtype, jnp.floating):
        return dense
    return min(math.ceil(leaf.size * bits / 8) + leaf.dtype.itemsize, dense)


@WRAPPERS.register("quantize", paper="alistarh2017qsgd")
def quantize(setting: core.Setting, *, bits: Annotated[int, Range(2)] = 8) -> Wrapper:
    """Rounds what clients send to 2^bits - 1 levels per array, at random and without bias.

        Q(x) = (s / L) floor(L x / s + u),   s = max |x|,   L = 2^(bits - 1) - 1,   u uniform in [0, 1)

    Every array of a message is quantized on its own (a layer's kernel, its bias; SCAFFOLD's second sum, too), and is
    sent as one scale s and `bits` bits per entry, rounded up to bytes; arrays that are no smaller that way are sent as
    they are. This is QSGD with the largest entry in place of the norm. Nothing is quantized on the way to the clients,
    and statistics (BatchNorm's) are not quantized either. FedDyn and FedGMA are refused: their servers compute further
    sums from exact steps.

    Args:
      bits: of an entry, from 2 to 16; 32 quantizes nothing.

    Raises:
      UserError: when the server needs exact steps.

    Source: Alistarh et al., QSGD: Communication-Efficient SGD via Gradient Quantization and Encoding, 2017,
    https://arxiv.org/abs/1610.02132.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("fedavg", wrappers=["quantize:bits=2"])  # steps of one entry are sent as they are
      {'model': [3.916, 3.315, 3.169]}
    """
    if bits > MOST_BITS and bits != 32:
        raise UserError(f"quantize: bits={bits} must be an integer in 2..{MOST_BITS}, or 32 to quantize nothing.")

    def quantized_phase(phase: core.Phase) -> core.Phase:
        def client(down, c):
            update = phase.client(down, c)
            check_nothing_derived("quantize", update.message)
            key, number = jax.random.fold_in(c.key, TAG), itertools.count()

            def one(x):
                own = jax.random.fold_in(key, next(number))
                compressed = sent_bytes(x, bits) < x.size * x.dtype.itemsize
                return stochastic(x, own, bits) if compressed else x

            return update._replace(message=map_values(one, update.message))

        def wire(down, message):
            down, up = phase.wire(down, message)
            return down, map_values(lambda x: jax.ShapeDtypeStruct((sent_bytes(x, bits),), jnp.uint8), up)

        return phase._replace(client=client, wire=wire)

    def wrap(algorithm):
        phases = (quantized_phase(phase) if phase.client else phase for phase in algorithm.phases)
        return algorithm._replace(phases=tuple(phases))

    return Wrapper("quantize") if bits == 32 else Wrapper("quantize", wrap)
