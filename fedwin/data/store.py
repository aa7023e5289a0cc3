"""The clients' data as a round sees it."""

from typing import Any, NamedTuple

import jax


class Store(NamedTuple):
    """The clients' data on the device; row k of `offset`, `info`, `weight` belongs to client row k.

    examples: feature -> [N, ...]; order: int32 [n]; offset: int32 [K + 1]: client k holds examples
    order[offset[k]:offset[k + 1]]; info: tree of [K, ...]; weight: float [K], N_i / sum of all N.
    """

    examples: Any
    order: jax.Array
    offset: jax.Array
    info: Any
    weight: jax.Array
