"""Rings of models: delay lines and window sums whose cost does not depend on the window.

A model is one flat float vector here (`Flat`). XLA copies a whole ring every round if the slot about to be overwritten
is read first; so a ring has one slot more than its longest window, and what leaves a window is read *after* the write.
A running sum is kept as two floats that hold twice the digits together: plain float32 sums drift, and one compensated
by what the last addition lost (Kahan) never recovers from a value that is large beside the others.
"""

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from fedwin import ring_buffer as rings
from fedwin.errors import UserError

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
    return Window(rings.make(tuple(sizes), size, dtype), none(), zeros(), zeros(), none())


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
    ring = rings.write(window.ring, window.count, vector)
    sums, compensation = [], []
    for number, (total, excess, w) in enumerate(zip(window.sums, window.compensation, sizes)):
        leaving = rings.read(ring, window.count, number, w)
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
    return Delay(rings.make((tau - 1,), size, dtype), jnp.zeros((), jnp.int32), jnp.zeros(size, dtype))


def shift(line: Delay, vector) -> Delay:
    """Pushes a vector; `oldest` becomes the one pushed tau - 1 pushes before it, i.e. tau ago at the next push."""
    tau = line.ring.shape[0]
    ring = rings.write(line.ring, line.count, vector.astype(line.ring.dtype))
    count = line.count + 1
    oldest = rings.read(ring, line.count, 0, tau - 1)
    return Delay(ring, count, jnp.where(count >= tau, oldest, 0))
