"""Test examples a few at a time."""

from collections.abc import Callable

import jax
from jax import lax

# On a CPU a batch goes through the network in equal blocks of at most so many examples: activations stay in the cache.
MOST_AT_ONCE, LEAST_AT_ONCE = 50, 25


def in_blocks(logits: Callable) -> Callable:
    """Returns `logits`, batch -> [B, ...], on a CPU computed for a few examples at a time where they divide a batch."""
    # Asked here, since lax.platform_dependent would trace the network once for every platform.
    if jax.default_backend() != "cpu":
        return logits

    def blockwise(batch):
        total = len(batch["mask"])
        each = next((n for n in range(MOST_AT_ONCE, LEAST_AT_ONCE - 1, -1) if total % n == 0), total)
        if each == total:
            return logits(batch)
        blocks = jax.tree.map(lambda values: values.reshape(total // each, each, *values.shape[1:]), batch)
        found = lax.map(logits, blocks)
        return found.reshape(total, *found.shape[2:])

    return blockwise
