"""Where the vectors of a window are: all of them on the device, or only those that one dispatch of rounds needs.

A push needs the vector that enters and those that leave. So a dispatch of R rounds needs R slots for vectors that enter
and, for every window, at most R that leave; the ring itself may be on the host or in a file (`residence.windows`).
"""

import contextlib
import contextvars
import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

# Rounds of a dispatch whose vectors are on the device; None = all vectors are.
_ROUNDS: contextvars.ContextVar[int | None] = contextvars.ContextVar("rounds", default=None)


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=["entered", "held", "base", "leaving"], meta_fields=["ages", "slots"]
)
@dataclasses.dataclass(frozen=True)
class Lent:
    """Those vectors of a ring that a dispatch needs.

    Attributes:
      entered: those that are pushed in it, [R, P].
      held: those pushed before it that leave in it, and zeros, [H, P].
      base: vectors pushed before the dispatch, int32 [].
      leaving: which of `entered` and `held`, counted on, leaves at the r-th push, int32 [n, R].
      ages: pushes between a vector's entering and leaving, one of n.
      slots: of the ring.
    """

    entered: Any
    held: Any
    base: Any
    leaving: Any
    ages: tuple[int, ...]
    slots: int

    @property
    def dtype(self):
        """Of the vectors."""
        return self.entered.dtype

    @property
    def rounds(self) -> int:
        """R."""
        return self.leaving.shape[1]

    @property
    def shape(self) -> tuple[int, int]:
        """Of the ring, [slots, P]."""
        return self.slots, self.entered.shape[1]


@contextlib.contextmanager
def lent(rounds: int | None) -> Iterator[None]:
    """Makes rings that begin inside of it hold what a dispatch of so many rounds needs; None: all vectors."""
    token = _ROUNDS.set(rounds)
    try:
        yield
    finally:
        _ROUNDS.reset(token)


def room(rounds: int, ages: tuple[int, ...]) -> int:
    """Returns H, the vectors that a dispatch needs room for beside those that are pushed in it."""
    return min(sum(min(age, rounds) for age in ages), max(ages)) + 1


def make(ages: tuple[int, ...], size: int, dtype) -> jax.Array | Lent:
    """Returns an empty ring.

    Args:
      ages: pushes between a vector's entering and leaving, for every window that is read from it.
      size: length P of the vectors.
      dtype: of the vectors.
    """
    rounds, slots = _ROUNDS.get(), max(ages) + 1
    if rounds is None:
        return jnp.zeros((slots, size), dtype)
    entered, held = jnp.zeros((rounds, size), dtype), jnp.zeros((room(rounds, ages), size), dtype)
    return Lent(entered, held, jnp.zeros((), jnp.int32), jnp.zeros((len(ages), rounds), jnp.int32), ages, slots)


def write(ring, count, vector):
    """Returns the ring after a push.

    Args:
      ring: [slots, P], or Lent.
      count: vectors pushed before this one.
      vector: [P].
    """
    if isinstance(ring, Lent):
        entered = lax.dynamic_update_index_in_dim(ring.entered, vector, count - ring.base, 0)
        return dataclasses.replace(ring, entered=entered)
    return lax.dynamic_update_index_in_dim(ring, vector, count % ring.shape[0], 0)


def read(ring, count, number: int, age: int):
    """Returns what leaves at a push, from the ring after it, [P]; zeros where nothing does yet.

    Args:
      ring: as `write` returns it.
      count: vectors pushed before it.
      number: of the window among those that are read.
      age: of what leaves.
    """
    if isinstance(ring, Lent):
        place = ring.leaving[number, count - ring.base]
        of = lambda vectors, place: lax.dynamic_index_in_dim(vectors, place, 0, keepdims=False)
        held = of(ring.held, jnp.maximum(place - ring.rounds, 0))
        if age >= ring.rounds:  # older than the dispatch
            return held
        return jnp.where(place < ring.rounds, of(ring.entered, place), held)
    # Slots not filled yet hold zeros.
    return lax.dynamic_index_in_dim(ring, (count - age) % ring.shape[0], 0, keepdims=False)


def needed(base: int, count: int, ages: tuple[int, ...]) -> np.ndarray:
    """Returns the numbers of the vectors pushed before a dispatch that leave in it, ascending, int64.

    Args:
      base: vectors pushed before it.
      count: those pushed in it.
      ages: as of `make`.
    """
    numbers = base + np.arange(count)[:, None] - np.asarray(ages)
    return np.unique(numbers[(numbers >= 0) & (numbers < base)])


def places(base: int, held: np.ndarray, like: Lent) -> np.ndarray:
    """Returns `leaving` of a dispatch.

    Args:
      base: vectors pushed before it.
      held: numbers of the vectors that are there beside those that enter, as `needed` returns them.
      like: the ring.
    """
    numbers = base + np.arange(like.rounds) - np.asarray(like.ages)[:, None]
    zero = like.rounds + like.held.shape[0] - 1
    found = np.searchsorted(held, numbers)
    known = (found < len(held)) & (held[np.minimum(found, len(held) - 1)] == numbers) if len(held) else found < 0
    return np.where(numbers >= base, numbers - base, np.where(known, like.rounds + found, zero)).astype(np.int32)
