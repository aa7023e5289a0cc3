"""Windows and delay lines over a trajectory of models: packing into vectors, ring buffers, running sums.

    packing = window.flat(params)                                  # trees <-> vectors [P]
    state = window.init(packing.size, (5, 50), packing.dtype)      # windows of 5 and 50 vectors over one ring buffer
    state = window.push(state, packing.pack(params), (5, 50))      # once a round
    average = packing.unpack(window.mean(state, 1, 50))            # of the last 50

A push needs the vector that enters and those that leave. A dispatch of R rounds therefore needs slots for R vectors
that enter and, for every window, for at most R that leave. If the ring buffer is offloaded to the host or to a file
(`fedwin.residence.rings`), the device holds only these, as a `PartialRing`.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, PartitionSpec

from fedwin.errors import UserError
from fedwin.tree import PyTree

# Vectors are padded to a multiple of this, so that a ring buffer divides evenly over the devices of a mesh.
ALIGNMENT = 1024
# Rounds are counted in int32.
MAX_ROUNDS = 2**31 - 2
# Two float32 hold 48 bits: a value up to this size leaves a sum again without a trace above 1e-6.
LARGEST = 2.0**28


class Flat(NamedTuple):
    """Converts trees of one structure to vectors and back.

    Attributes:
      pack: tree -> [P].
      unpack: [P] -> tree.
      dtype: dtype of the vectors.
      size: P.
    """

    pack: Callable
    unpack: Callable
    dtype: np.dtype
    size: int


def _replicate(vector):
    """Constrains a traced vector to be whole on every device of the mesh in context (`jax.sharding`), if there is one.

    Windows may be split over the devices of a mesh, trees are whole on each. Without the constraint, XLA propagates the
    split into the tree and exchanges it leaf by leaf.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty or any(kind != AxisType.Auto for kind in mesh.axis_types):
        return vector
    return lax.with_sharding_constraint(vector, PartitionSpec())


def flat(example) -> Flat:
    """Returns the conversion for trees like `example`, in at least float32.

    bfloat16 leaves are float32 inside a window; `unpack` restores the dtype of every leaf.

    Args:
      example: tree of arrays or jax.ShapeDtypeStruct.
    """
    leaves, treedef = jax.tree.flatten(jax.eval_shape(lambda t: t, example))
    dtype = jnp.result_type(jnp.float32, *(leaf.dtype for leaf in leaves))
    size = -(-max(sum(leaf.size for leaf in leaves), 1) // ALIGNMENT) * ALIGNMENT

    def pack(t):
        # Leaf by leaf in place: XLA:CPU compiles one big concatenation to a slow elementwise loop.
        vector, at = jnp.zeros(size, dtype), 0
        for leaf in jax.tree.leaves(t):
            vector = lax.dynamic_update_slice(vector, leaf.reshape(-1).astype(dtype), (at,))
            at += leaf.size
        return _replicate(vector)

    def unpack(vector):
        parts, at = [], 0
        vector = _replicate(vector)
        for leaf in leaves:
            parts.append(vector[at : at + leaf.size].reshape(leaf.shape).astype(leaf.dtype))
            at += leaf.size
        return jax.tree.unflatten(treedef, parts)

    return Flat(pack, unpack, dtype, size)


@jax.tree_util.register_static
class Sizes(tuple):
    """Window sizes, a part of a state without leaves."""


class Window(NamedTuple):
    """The last W + 1 vectors, and a running sum for every window size.

    Attributes:
      ring: [W + 1, P]; a PartialRing where it is offloaded.
      count: vectors pushed so far, int32 [].
      sums: one [P] per size.
      compensation: by how much each sum is too large, one [P] per size.
      spoiled: `count` after the newest vector whose norm is not finite or beyond `LARGEST`, 0 = none, int32 [].
      sizes: the window sizes that have a sum.
      weighted: the largest window size of weighted means, none if empty.
    """

    ring: "Ring"
    count: jax.Array  # type: ignore[assignment]  # a tuple has a method of this name
    sums: tuple[jax.Array, ...]
    compensation: tuple[jax.Array, ...]
    spoiled: jax.Array
    sizes: Sizes = Sizes()
    weighted: Sizes = Sizes()

    @property
    def ages(self) -> tuple[int, ...]:
        """Pushes between a vector's entering and its being read, once per read of a push or of a weighted mean."""
        return (*self.sizes, *range(max(self.weighted, default=0)))


def init(size: int, sizes: tuple[int, ...], dtype=jnp.float32, weighted: int = 0) -> Window:
    """Returns an empty window.

    Args:
      size: length P of the vectors.
      sizes: window sizes W, each of which gets a running sum.
      dtype: dtype of the vectors.
      weighted: the largest window size of weighted means, which need no sum; 0 = none.

    Raises:
      UserError: for a window size below 1.
    """
    read = Sizes((weighted,) if weighted else ())
    for w in (*sizes, *read):
        check_size("window", w)
    zeros = lambda: tuple(jnp.zeros(size, dtype) for _ in sizes)
    zero = lambda: jnp.zeros((), jnp.int32)
    ring = _empty_ring(max((*sizes, *read)) + 1, size, dtype)
    return Window(ring, zero(), zeros(), zeros(), zero(), Sizes(sizes), read)


def check_size(name: str, size) -> None:
    """Raises UserError unless `size` is an integer from 1 to MAX_ROUNDS; `name` is that of the hyper-parameter."""
    if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < 1:
        raise UserError(f"{name}={size}: a window holds at least 1 model; use an integer >= 1.")
    if size > MAX_ROUNDS:
        raise UserError(f"{name}={size} must be at most {MAX_ROUNDS}: rounds are 32-bit integers on the device.")


def _two_sum(a, b):
    """Returns (s, e) with s = a + b rounded and s + e = a + b exactly (Knuth)."""
    s = a + b
    rest = s - a
    return s, (a - (s - rest)) + (b - rest)


def _summable(vector):
    """Returns the vector with 0 in place of values that could not be subtracted from a sum again."""
    return jnp.where(jnp.abs(vector) <= LARGEST, vector, 0)  # a NaN compares false


def _updated_sum(entering, leaving, total, excess):
    """Returns (sum, by how much it is too large) after adding one vector and subtracting another."""
    total, low = _two_sum(total, -excess)
    change, lost = _two_sum(_summable(entering), -_summable(leaving))
    total, lost_too = _two_sum(total, change)
    return total, -(low + (lost + lost_too))


def push(window: Window, vector, sizes: tuple[int, ...]) -> Window:
    """Appends a vector; the cost does not depend on the window sizes.

        S_w <- S_w + v_t - v_{t-w}    for every size w

    Args:
      window: the window before.
      vector: v_t [P].
      sizes: the sizes passed to `init`.
    """
    vector = vector.astype(window.ring.dtype)
    ring = _write(window.ring, window.count, vector)
    sums, compensation = [], []
    for number, (total, excess, w) in enumerate(zip(window.sums, window.compensation, sizes)):
        operands = (vector, _read(ring, window.count, number, w), total, excess)
        # Behind a barrier the second result is computed again: XLA:CPU would write their common part to memory.
        sums.append(_updated_sum(*operands)[0])
        compensation.append(_updated_sum(*lax.optimization_barrier(operands))[1])
    count = window.count + 1
    # The norm bounds every value, and a product of vectors is the fastest pass over them.
    spoiled = jnp.where(jnp.dot(vector, vector) <= LARGEST**2, window.spoiled, count)
    return Window(ring, count, tuple(sums), tuple(compensation), spoiled, window.sizes, window.weighted)


def mean(window: Window, index: int, w: int):
    """Returns the mean of the last min(w, count) vectors, [P].

    All entries are NaN while the norm of one of these vectors is not finite or exceeds `LARGEST`; the mean recovers
    once that vector has left the window.

    Args:
      window: the vectors.
      index: the position of w among the sizes.
      w: the window size.
    """
    filled = jnp.clip(window.count, 1, w)
    average = (window.sums[index] - window.compensation[index]) / filled.astype(window.ring.dtype)
    return jnp.where(_spoiled(window, w), jnp.nan, average)


def weighted_mean(window: Window, weights):
    """Returns a weighted mean of the last W vectors, sum_{j=0}^{W-1} c_j v_{t-j}, [P].

    It reads W vectors instead of a sum: O(W P) per call, nothing per push. It is NaN in the same cases as `mean`.

    Args:
      window: the vectors; W is at most its `weighted`.
      weights: c_j by age, newest first, [W]; 0 for vectors that have not been pushed yet.
    """
    dtype, weights = window.ring.dtype, jnp.asarray(weights, window.ring.dtype)

    def add(age, total):
        vector = _read(window.ring, window.count - 1, len(window.sizes) + age, age)
        # Behind a barrier the sum is rounded in the same way wherever the vectors are.
        return total + weights[age] * _summable(lax.optimization_barrier(vector))

    total = lax.fori_loop(0, len(weights), add, jnp.zeros(window.ring.shape[1], dtype))
    return jnp.where(_spoiled(window, len(weights)), jnp.nan, total)


def _spoiled(window: Window, w: int):
    return (window.spoiled > 0) & (window.count - window.spoiled < w)


class Delay(NamedTuple):
    """A delay line.

    Attributes:
      ring: [tau, P]; a PartialRing where it is offloaded.
      count: vectors pushed so far, int32 [].
      oldest: the vector pushed tau pushes ago (0 before that), [P].
    """

    ring: "Ring"
    count: jax.Array  # type: ignore[assignment]  # a tuple has a method of this name
    oldest: jax.Array

    @property
    def ages(self) -> tuple[int, ...]:
        """Pushes between a vector's entering and its being read, once per read of a push."""
        return (self.ring.shape[0] - 1,)


def delay(size: int, tau: int, dtype=jnp.float32) -> Delay:
    """Returns an empty delay line.

    Args:
      size: length P of the vectors.
      tau: the delay in pushes.
      dtype: dtype of the vectors.

    Raises:
      UserError: for tau < 1.
    """
    check_size("tau", tau)
    return Delay(_empty_ring(tau, size, dtype), jnp.zeros((), jnp.int32), jnp.zeros(size, dtype))


def shift(line: Delay, vector) -> Delay:
    """Pushes a vector; `oldest` becomes the one pushed tau - 1 pushes before it, i.e. tau ago at the next push.

    Args:
      line: the delay line before.
      vector: [P].
    """
    tau = line.ring.shape[0]
    ring = _write(line.ring, line.count, vector.astype(line.ring.dtype))
    count = line.count + 1
    return Delay(ring, count, jnp.where(count >= tau, _read(ring, line.count, 0, tau - 1), 0))


def is_window(node) -> bool:
    """Whether a node of a state is a Window or a Delay, for `is_leaf` of jax.tree."""
    return isinstance(node, (Window, Delay))


# Ring buffers: whole, or the part of an offloaded one that a dispatch needs.


def _empty_ring(slots: int, size: int, dtype):
    """Returns zeros [slots, P]: a host array, or a traced one inside of jit.

    The host array is one zero, broadcast: systems refuse to reserve more than their memory, which an offloaded ring
    buffer never takes. `residence.rings.allocate` replaces it.
    """
    zero = jnp.zeros((), dtype)
    if isinstance(zero, jax.core.Tracer):
        return jnp.zeros((slots, size), dtype)
    return np.broadcast_to(np.zeros((), zero.dtype), (slots, size))


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["entered", "earlier", "base", "leaving"],
    meta_fields=["ages", "slots"],
)
@dataclasses.dataclass(frozen=True)
class PartialRing:
    """The vectors of an offloaded ring buffer that a dispatch of R rounds needs.

    Attributes:
      entered: vectors pushed during the dispatch, [R, P].
      earlier: vectors pushed before the dispatch that are read during it, followed by zeros, [H, P].
      base: number of vectors pushed before the dispatch, int32 [].
      leaving: index into `entered` and `earlier`, joined, of the vector that leaves at the r-th push, int32 [n, R];
        [n, 1 + R] if an age is 0, beginning with what was read at the last push before the dispatch.
      ages: pushes between a vector's entering and leaving, one for each of n windows.
      slots: number of slots of the whole ring buffer.
    """

    entered: PyTree
    earlier: PyTree
    base: PyTree
    leaving: PyTree
    ages: tuple[int, ...]
    slots: int

    @property
    def dtype(self):
        """Dtype of the vectors."""
        return self.entered.dtype

    @property
    def rounds(self) -> int:
        """R."""
        return self.entered.shape[0]

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the whole ring buffer, [slots, P]."""
        return self.slots, self.entered.shape[1]


Ring = jax.Array | np.ndarray | PartialRing


def _write(ring: Ring, count, vector) -> Ring:
    """Returns the ring buffer after a push.

    Args:
      ring: [slots, P], or PartialRing.
      count: number of vectors pushed before this one.
      vector: [P].
    """
    if isinstance(ring, PartialRing):
        entered = lax.dynamic_update_index_in_dim(ring.entered, vector, count - ring.base, 0)
        return dataclasses.replace(ring, entered=entered)
    return lax.dynamic_update_index_in_dim(ring, vector, count % ring.shape[0], 0)


def _read(ring: Ring, count, number, age) -> jax.Array:
    """Returns the vector pushed `age` pushes before a push, from the ring buffer after it, [P]; zeros if none was.

    Args:
      ring: as `_write` returns it.
      count: number of vectors pushed before this push.
      number: position of this age among those that are read, `Window.ages`.
      age: age of the vector, in pushes; may be traced, like `number`.
    """
    if isinstance(ring, PartialRing):
        index = ring.leaving[number, count - ring.base + ring.leaving.shape[1] - ring.rounds]
        row = lambda vectors, index: lax.dynamic_index_in_dim(vectors, index, 0, keepdims=False)
        earlier = row(ring.earlier, jnp.maximum(index - ring.rounds, 0))
        if isinstance(age, int) and age >= ring.rounds:  # pushed before the dispatch
            return earlier
        return jnp.where(index < ring.rounds, row(ring.entered, index), earlier)
    # Slots not filled yet hold zeros.
    return lax.dynamic_index_in_dim(ring, (count - age) % ring.shape[0], 0, keepdims=False)
