"""Rings of models: delay lines and window sums whose cost does not depend on the window.

A model is one flat float vector here (`Flat`). XLA copies a whole ring every round if the slot about to be overwritten
is read first; so a ring has one slot more than its longest window, and what leaves a window is read *after* the write.
Sums are compensated (Kahan): plain float32 sums drift.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from fedwin.errors import UserError

# Vectors are padded to a multiple of this, so that a ring divides evenly over the devices of a mesh.
ALIGNMENT = 1024


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
        return vector

    def unpack(vector):
        parts, at = [], 0
        for leaf in leaves:
            parts.append(vector[at : at + leaf.size].reshape(leaf.shape).astype(leaf.dtype))
            at += leaf.size
        return jax.tree.unflatten(treedef, parts)

    return Flat(pack, unpack, dtype, size)


class Window(NamedTuple):
    """The last W + 1 vectors and one running sum for every window size that is asked for.

    Attributes:
      ring: [W + 1, P].
      count: vectors pushed so far, int32 [].
      sums: one [P] per size.
      compensation: what the last addition lost, one [P] per size.
    """

    ring: jax.Array
    count: jax.Array  # type: ignore[assignment]  # a tuple has a method of this name
    sums: tuple[jax.Array, ...]
    compensation: tuple[jax.Array, ...]


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
    return Window(jnp.zeros((max(sizes) + 1, size), dtype), jnp.zeros((), jnp.int32), zeros(), zeros())


def check_size(name: str, size) -> None:
    """Raises UserError unless `size` is an integer >= 1."""
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise UserError(f"{name}={size}: a window holds at least 1 model; use an integer >= 1.")


def push(window: Window, vector, sizes: tuple[int, ...]) -> Window:
    """Appends a vector; the cost does not depend on the window sizes.

        S_w <- S_w + v_t - v_{t-w}    for every size w

    Args:
      window: what it is appended to.
      vector: v_t [P].
      sizes: those that `init` was given.
    """
    slots = window.ring.shape[0]
    vector = vector.astype(window.ring.dtype)
    ring = lax.dynamic_update_index_in_dim(window.ring, vector, window.count % slots, 0)
    sums, compensation = [], []
    for total, lost, w in zip(window.sums, window.compensation, sizes):
        leaving = lax.dynamic_index_in_dim(ring, (window.count - w) % slots, 0, keepdims=False)
        # Kahan: what the last addition lost is taken from the next addend. Slots not filled yet hold zeros.
        addend = (vector - leaving) - lost
        sums.append(total + addend)
        compensation.append((sums[-1] - total) - addend)
    return Window(ring, window.count + 1, tuple(sums), tuple(compensation))


def mean(window: Window, index: int, w: int):
    """Returns the mean of the last min(w, count) vectors, [P].

    Args:
      window: the vectors.
      index: the position of w among the sizes.
      w: the window size.
    """
    filled = jnp.clip(window.count, 1, w)
    return (window.sums[index] - window.compensation[index]) / filled.astype(window.ring.dtype)


class Delay(NamedTuple):
    """A delay line.

    Attributes:
      ring: [tau, P].
      count: vectors pushed so far, int32 [].
      oldest: the vector pushed tau pushes ago (0 before that), [P].
    """

    ring: jax.Array
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
    return Delay(jnp.zeros((tau, size), dtype), jnp.zeros((), jnp.int32), jnp.zeros(size, dtype))


def shift(line: Delay, vector) -> Delay:
    """Pushes a vector; `oldest` becomes the one pushed tau - 1 pushes before it, i.e. tau ago at the next push."""
    tau = line.ring.shape[0]
    ring = lax.dynamic_update_index_in_dim(line.ring, vector.astype(line.ring.dtype), line.count % tau, 0)
    count = line.count + 1
    oldest = lax.dynamic_index_in_dim(ring, count % tau, 0, keepdims=False)
    return Delay(ring, count, jnp.where(count >= tau, oldest, 0))
