"""Where the vectors of a window are: all of them on the device, or only those that one dispatch of rounds needs.

A push needs the vector that enters and those that leave. So a dispatch of R rounds needs R slots for vectors that enter
and, for every window, at most R that leave; the ring itself may be on the host or in a file (`residence.windows`).
"""

import contextlib
import contextvars
import dataclasses
import functools
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedwin.errors import UserError

# Rounds of a dispatch whose vectors are on the device; None = all vectors are.
_ROUNDS: contextvars.ContextVar[int | None] = contextvars.ContextVar("rounds", default=None)


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=["entered", "held", "base", "leaving"], meta_fields=["ages", "slots"]
)
@dataclasses.dataclass(frozen=True)
class PartialRing:
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


def max_earlier(rounds: int, ages: tuple[int, ...]) -> int:
    """Returns H, the vectors that a dispatch needs room for beside those that are pushed in it."""
    return min(sum(min(age, rounds) for age in ages), max(ages)) + 1


def make(ages: tuple[int, ...], size: int, dtype) -> jax.Array | PartialRing:
    """Returns an empty ring.

    Args:
      ages: pushes between a vector's entering and leaving, for every window that is read from it.
      size: length P of the vectors.
      dtype: of the vectors.
    """
    rounds, slots = _ROUNDS.get(), max(ages) + 1
    if rounds is None:
        return jnp.zeros((slots, size), dtype)
    entered, held = jnp.zeros((rounds, size), dtype), jnp.zeros((max_earlier(rounds, ages), size), dtype)
    return PartialRing(entered, held, jnp.zeros((), jnp.int32), jnp.zeros((len(ages), rounds), jnp.int32), ages, slots)


def write(ring, count, vector):
    """Returns the ring after a push.

    Args:
      ring: [slots, P], or Lent.
      count: vectors pushed before this one.
      vector: [P].
    """
    if isinstance(ring, PartialRing):
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
    if isinstance(ring, PartialRing):
        place = ring.leaving[number, count - ring.base]
        of = lambda vectors, place: lax.dynamic_index_in_dim(vectors, place, 0, keepdims=False)
        held = of(ring.held, jnp.maximum(place - ring.rounds, 0))
        if age >= ring.rounds:  # older than the dispatch
            return held
        return jnp.where(place < ring.rounds, of(ring.entered, place), held)
    # Slots not filled yet hold zeros.
    return lax.dynamic_index_in_dim(ring, (count - age) % ring.shape[0], 0, keepdims=False)


def vectors_leaving(base: int, count: int, ages: tuple[int, ...]) -> np.ndarray:
    """Returns the numbers of the vectors pushed before a dispatch that leave in it, ascending, int64.

    Args:
      base: vectors pushed before it.
      count: those pushed in it.
      ages: as of `make`.
    """
    numbers = base + np.arange(count)[:, None] - np.asarray(ages)
    return np.unique(numbers[(numbers >= 0) & (numbers < base)])


def leaving_indices(base: int, held: np.ndarray, like: PartialRing) -> np.ndarray:
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


# Vectors are padded to a multiple of this, so that a ring divides evenly over the devices of a mesh.
ALIGNMENT = 1024
# Rounds are counted in int32.
MOST = 2**31 - 2

# Two float32 hold 48 bits: what is no larger than this leaves a sum again without a trace above 1e-6.
LARGEST = 2.0**28


# Keeps a traced vector whole on every device of a mesh.
_whole: ContextVar[Callable] = ContextVar("whole", default=lambda vector: vector)


@contextlib.contextmanager
def on_mesh(whole: Callable) -> Iterator[None]:
    """Has vectors whole on every device where they are made of trees and become trees, while the body traces.

    Windows may be split over the devices of a mesh, trees are whole on each. Left to itself, XLA carries the split into
    the tree and exchanges it leaf by leaf.

    Args:
      whole: vector -> the same vector, whole everywhere.
    """
    token = _whole.set(whole)
    try:
        yield
    finally:
        _whole.reset(token)


class Flat(NamedTuple):
    """How trees of one structure become vectors.

    Attributes:
      pack: tree -> [P].
      unpack: [P] -> tree.
      dtype: of the vectors.
      size: P.
    """

    pack: Callable
    unpack: Callable
    dtype: Any
    size: int


def flat(example) -> Flat:
    """Returns the packing of trees like `example` (arrays or ShapeDtypeStructs), in float32 at least.

    bfloat16 leaves are kept in float32 inside a window; `unpack` restores the dtype of every leaf.
    """
    shapes = jax.eval_shape(lambda t: t, example)
    leaves, treedef = jax.tree.flatten(shapes)
    dtype = jnp.result_type(jnp.float32, *(leaf.dtype for leaf in leaves))
    size = -(-max(sum(leaf.size for leaf in leaves), 1) // ALIGNMENT) * ALIGNMENT

    def pack(t):
        # Leaf by leaf in place: XLA:CPU makes a slow elementwise loop of one big concatenation.
        vector, at = jnp.zeros(size, dtype), 0
        for leaf in jax.tree.leaves(t):
            vector = lax.dynamic_update_slice(vector, leaf.reshape(-1).astype(dtype), (at,))
            at += leaf.size
        return _whole.get()(vector)

    def unpack(vector):
        parts, at = [], 0
        vector = _whole.get()(vector)
        for leaf in leaves:
            parts.append(vector[at : at + leaf.size].reshape(leaf.shape).astype(leaf.dtype))
            at += leaf.size
        return jax.tree.unflatten(treedef, parts)

    return Flat(pack, unpack, dtype, size)


class Window(NamedTuple):
    """The last W + 1 vectors and one running sum for every window size that is asked for.

    Attributes:
      ring: [W + 1, P], or those of it that a dispatch needs (ring.Lent).
      count: vectors pushed so far, int32 [].
      sums: one [P] per size.
      compensation: by how much each sum is too large, one [P] per size.
      spoiled: `count` after the newest vector whose norm is not finite or beyond `LARGEST`, 0 = none, int32 [].
    """

    ring: Any
    count: jax.Array  # type: ignore[assignment]  # a tuple has a method of this name
    sums: tuple[jax.Array, ...]
    compensation: tuple[jax.Array, ...]
    spoiled: jax.Array


def init(size: int, sizes: tuple[int, ...], dtype=jnp.float32) -> Window:
    """Returns an empty window.

    Args:
      size: length P of the vectors.
      sizes: the window sizes W that sums are kept for.
      dtype: of the vectors.

    Raises:
      UserError: for a window size below 1.
    """
    for w in sizes:
        check_size("window", w)
    zeros = lambda: tuple(jnp.zeros(size, dtype) for _ in sizes)
    none = lambda: jnp.zeros((), jnp.int32)
    return Window(make(tuple(sizes), size, dtype), none(), zeros(), zeros(), none())


def check_size(name: str, size) -> None:
    """Raises UserError unless `size` is an integer >= 1."""
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise UserError(f"{name}={size}: a window holds at least 1 model; use an integer >= 1.")
    if size > MOST:
        raise UserError(f"{name}={size} must be at most {MOST}: rounds are 32-bit integers on the device.")


def _two_sum(a, b):
    """Returns (s, e) with s = a + b rounded and s + e = a + b exactly (Knuth)."""
    s = a + b
    rest = s - a
    return s, (a - (s - rest)) + (b - rest)


def _counted(vector):
    """A vector as it enters and leaves the sums: without what they could not get rid of again."""
    return jnp.where(jnp.abs(vector) <= LARGEST, vector, 0)  # a NaN compares false


def _moved(entering, leaving, total, excess):
    """Adds what enters a sum and takes off what leaves it: (sum, by how much it is too large)."""
    total, low = _two_sum(total, -excess)
    change, lost = _two_sum(_counted(entering), -_counted(leaving))
    total, lost_too = _two_sum(total, change)
    return total, -(low + (lost + lost_too))


def push(window: Window, vector, sizes: tuple[int, ...]) -> Window:
    """Appends a vector; the cost does not depend on the window sizes.

        S_w <- S_w + v_t - v_{t-w}    for every size w

    Args:
      window: what it is appended to.
      vector: v_t [P].
      sizes: those that `init` was given.
    """
    vector = vector.astype(window.ring.dtype)
    ring = write(window.ring, window.count, vector)
    sums, compensation = [], []
    for number, (total, excess, w) in enumerate(zip(window.sums, window.compensation, sizes)):
        leaving = read(ring, window.count, number, w)
        given = (vector, leaving, total, excess)
        # Behind a barrier the second result is computed anew: XLA:CPU would write what both need to memory.
        sums.append(_moved(*given)[0])
        compensation.append(_moved(*lax.optimization_barrier(given))[1])
    count = window.count + 1
    # The norm bounds every value, and a product of vectors is the fastest pass over them.
    healthy = jnp.dot(vector, vector) <= LARGEST**2
    return Window(ring, count, tuple(sums), tuple(compensation), jnp.where(healthy, window.spoiled, count))


def mean(window: Window, index: int, w: int):
    """Returns the mean of the last min(w, count) vectors, [P].

    It is NaN throughout while the norm of one of them is not finite or beyond `LARGEST`, and right again once that one
    has left.

    Args:
      window: the vectors.
      index: the position of w among the sizes.
      w: the window size.
    """
    filled = jnp.clip(window.count, 1, w)
    spoiled = (window.spoiled > 0) & (window.count - window.spoiled < w)
    average = (window.sums[index] - window.compensation[index]) / filled.astype(window.ring.dtype)
    return jnp.where(spoiled, jnp.nan, average)


class Delay(NamedTuple):
    """A delay line.

    Attributes:
      ring: [tau, P], or those of it that a dispatch needs (ring.Lent).
      count: vectors pushed so far, int32 [].
      oldest: the vector pushed tau pushes ago (0 before that), [P].
    """

    ring: Any
    count: jax.Array  # type: ignore[assignment]  # a tuple has a method of this name
    oldest: jax.Array


def delay(size: int, tau: int, dtype=jnp.float32) -> Delay:
    """Returns an empty delay line.

    Args:
      size: length P of the vectors.
      tau: by how many pushes it delays.
      dtype: of the vectors.

    Raises:
      UserError: for tau < 1.
    """
    check_size("tau", tau)
    return Delay(make((tau - 1,), size, dtype), jnp.zeros((), jnp.int32), jnp.zeros(size, dtype))


def shift(line: Delay, vector) -> Delay:
    """Pushes a vector; `oldest` becomes the one pushed tau - 1 pushes before it, i.e. tau ago at the next push."""
    tau = line.ring.shape[0]
    ring = write(line.ring, line.count, vector.astype(line.ring.dtype))
    count = line.count + 1
    oldest = read(ring, line.count, 0, tau - 1)
    return Delay(ring, count, jnp.where(count >= tau, oldest, 0))
