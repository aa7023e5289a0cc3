"""Batches: in which order a client's examples are seen, and which of them make a step."""

import dataclasses

import jax
import jax.numpy as jnp
from jax import lax

from fedwin import core


def ceil_div(a, b):
    """Returns a / b rounded up; may be traced."""
    return (a + b - 1) // b


def shuffled(key, size, n_max: int):
    """Returns a uniform permutation of 0..size-1 in the first `size` of n_max places.

    It depends on (key, size) only, not on n_max (threefry draws are prefix-stable), so that a client's order is the
    same whatever cohort it is padded to.

    Args:
      key: draws it.
      size: how many are permuted, int32 [].
      n_max: length of the result.
    """
    bits = jax.random.bits(key, (n_max,), jnp.uint32)
    place = jnp.arange(n_max)
    last = jnp.where(place < size, bits, jnp.uint32(0xFFFFFFFF))
    return jnp.argsort(last, stable=True).astype(jnp.int32)


@dataclasses.dataclass(frozen=True)
class Batches:
    """How a client's examples become batches.

    Attributes:
      batch_size: B.
      batching: 'epoch', a short last batch in every pass, or 'repeat', full batches that may straddle two passes.
      shuffle: False takes the examples in stored order.
      equal_size: N if every client has exactly N examples, else None.
    """

    batch_size: int
    batching: str = "epoch"
    shuffle: bool = True
    equal_size: int | None = None

    @property
    def always_full(self) -> bool:
        """Whether no batch of `plan` has an empty place."""
        return self.batching == "repeat" or (self.equal_size is not None and self.equal_size % self.batch_size == 0)

    def size(self, c: core.Client):
        """The client's number of examples; a constant where all clients have equally many."""
        return c.size if self.equal_size is None else self.equal_size

    def per_pass(self, c: core.Client):
        """Batches of one pass over the examples."""
        return ceil_div(self.size(c), self.batch_size)

    def steps(self, size, epochs):
        """Steps of a client with `size` examples: E ceil(N / B), or ceil(E N / B)."""
        if self.batching == "epoch":
            return epochs * ceil_div(size, self.batch_size)
        return ceil_div(epochs * size, self.batch_size)

    def places(self, n_max: int, most: int) -> int:
        """Returns the length L of the order that `plan` lays out for at most n_max examples and `most` passes."""
        return most * (n_max + self.batch_size) + self.batch_size + n_max

    def plan(self, c: core.Client, epochs, most: int):
        """Lays out the order in which examples are seen.

        Args:
          c: the client.
          epochs: passes over its examples, an int or int32 [].
          most: the most that `epochs` can be.

        Returns:
          (positions int32 [L], steps): step j takes positions[j B : (j + 1) B], where -1 is an empty place.
        """
        n_max, batch, size = c.index.shape[0], self.batch_size, self.size(c)
        steps = self.steps(size, epochs)
        key = jax.random.fold_in(c.key, 0)
        place = jnp.arange(n_max)
        stride = ceil_div(size, batch) * batch if self.batching == "epoch" else size
        # A client without examples (padding) takes no step; its stride must still not be 0.
        passes = ceil_div(steps * batch, jnp.maximum(stride, 1) if self.equal_size is None else stride)

        def lay(q, positions):
            order = shuffled(jax.random.fold_in(key, q), size, n_max) if self.shuffle else place.astype(jnp.int32)
            row = jnp.where(place < size, order, -1)
            # Later passes overwrite the empty tail of earlier ones; the buffer is long enough never to clamp.
            return lax.dynamic_update_slice(positions, row, (q * stride,))

        return lax.fori_loop(0, passes, lay, jnp.full((self.places(n_max, most),), -1, jnp.int32)), steps

    def one_pass(self, c: core.Client):
        """Returns what `plan` returns, for one pass in stored order whose last batch may be short."""
        place = jnp.arange(c.index.shape[0] + self.batch_size)
        return jnp.where(place < c.size, place, -1), self.per_pass(c)

    def take(self, c: core.Client, positions, j, full: bool = False):
        """Returns the j-th batch; 'mask' (1 real, 0 empty) is left out where batches are always full."""
        taken = lax.dynamic_slice(positions, (j * self.batch_size,), (self.batch_size,))
        rows = c.index[jnp.maximum(taken, 0)]
        batch = {name: values[rows] for name, values in c.examples.items()}
        return batch if full else batch | {"mask": (taken >= 0).astype(jnp.float32)}

    def count(self, batch):
        """Returns the number of examples in a batch, float []."""
        return jnp.sum(batch["mask"]) if "mask" in batch else jnp.asarray(float(self.batch_size))
