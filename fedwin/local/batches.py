"""Batches of a client's examples: the order in which local training visits them, and the number of steps."""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from fedwin import core


def ceil_div(a, b):
    """Computes a / b, rounded up, for integers that may be traced; b is positive."""
    return (a + b - 1) // b


def share_of(share, count):
    """Computes a share, from `exact_share`, of a number of steps or examples, rounded up.

    The product is one multiplication in float32, so that host and device agree to the bit. Both arguments may be arrays
    or traced; for two numbers the result is an int.

    Example:
      >>> share_of(exact_share(0.1), 30), share_of(exact_share(0.5), 7)
      (3, 4)
    """
    traced = isinstance(share, jax.Array) or isinstance(count, jax.Array)
    numpy = jnp if traced else np
    product = numpy.ceil(numpy.asarray(share, np.float32) * numpy.asarray(count).astype(np.float32))
    return product.astype(np.int32) if traced or np.ndim(product) else int(product)


def exact_share(share):
    """Returns shares for `share_of`: a millionth smaller unless whole, because 0.1 * 30 = 3.0000001 in float32."""
    share = np.asarray(share, float)
    return np.where(share == np.round(share), share, share * (1 - 1e-6)).astype(np.float32)


# Each length of a sort is four times the one before, the first above this. Not tuned. Vmapped over clients, all are
# sorted.
FEW_PLACES = 32


def shuffled(key, size, n_max: int):
    """Draws a uniform permutation of 0..size-1, in the first `size` places of the result, int32 [n_max].

    It depends on (key, size) only, not on n_max (threefry draws are prefix-stable), so a client's order does not depend
    on the size that its cohort is padded to.
    """

    def sort(length):
        bits = jax.random.bits(key, (length,), jnp.uint32)
        sort_keys = jnp.where(jnp.arange(length) < size, bits, jnp.uint32(0xFFFFFFFF))
        return jnp.pad(jnp.argsort(sort_keys, stable=True).astype(jnp.int32), (0, n_max - length))

    # Where sizes differ, a small client is not to pay for sorting as many places as the largest one has.
    lengths = [n_max]
    while not isinstance(size, int) and lengths[0] > 4 * FEW_PLACES:
        lengths.insert(0, lengths[0] // 4)
    enough = sum((size > length).astype(jnp.int32) for length in lengths[:-1])
    return lax.switch(enough, [functools.partial(sort, length) for length in lengths]) if lengths[1:] else sort(n_max)


@dataclasses.dataclass(frozen=True)
class Batches:
    """Division of a client's examples into batches.

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
        """Whether no batch of `plan` contains padding."""
        return self.batching == "repeat" or (self.equal_size is not None and self.equal_size % self.batch_size == 0)

    def size(self, c: core.Client):
        """Returns the client's number of examples; a constant if all clients have equally many."""
        return c.size if self.equal_size is None else self.equal_size

    def per_pass(self, c: core.Client):
        """Returns the number of batches of one pass over the client's examples."""
        return ceil_div(self.size(c), self.batch_size)

    def steps(self, size, epochs):
        """Returns the number of local steps of a client with `size` = N examples.

        ceil(E ceil(N / B)) for 'epoch', ceil(E N / B) for 'repeat';   `epochs` = E, which need not be whole
        """
        times = (lambda n: epochs * n) if not isinstance(epochs, float) else lambda n: share_of(exact_share(epochs), n)
        if self.batching == "epoch":
            return times(ceil_div(size, self.batch_size))
        return ceil_div(times(size), self.batch_size)

    def places(self, n_max: int, most: float) -> int:
        """Returns the length of the order for at most `most` passes; the largest client has n_max examples."""
        return math.ceil(most) * (n_max + self.batch_size) + self.batch_size + n_max

    def places_of_steps(self, n_max: int, most: int) -> int:
        """Returns the length of the order for at most `most` steps; the largest client has n_max examples."""
        return most * self.batch_size + n_max

    def order(self, c: core.Client, steps, length: int):
        """Returns the order in which a number of steps visits the client's examples, pass after pass.

        Args:
          steps: number of local steps, an int or int32 [].
          length: L, from `places` or `places_of_steps`.

        Returns:
          positions int32 [L]: step j takes positions[j B : (j + 1) B], where -1 is padding.
        """
        n_max, batch, size = c.index.shape[0], self.batch_size, self.size(c)
        key = jax.random.fold_in(c.key, 0)
        place = jnp.arange(n_max)
        stride = ceil_div(size, batch) * batch if self.batching == "epoch" else size
        # A client without examples (padding) takes no step, but its stride must not be 0.
        passes = ceil_div(steps * batch, jnp.maximum(stride, 1) if self.equal_size is None else stride)

        def write_pass(q, positions):
            order = shuffled(jax.random.fold_in(key, q), size, n_max) if self.shuffle else place.astype(jnp.int32)
            row = jnp.where(place < size, order, -1)
            # Later passes overwrite the padding at the end of earlier ones; the buffer is long enough for all.
            return lax.dynamic_update_slice(positions, row, (q * stride,))

        return lax.fori_loop(0, passes, write_pass, jnp.full((length,), -1, jnp.int32))

    def one_pass(self, c: core.Client):
        """Returns (positions, steps), as `Solver.plan`, of one pass in stored order, whose last batch may be short."""
        place = jnp.arange(c.index.shape[0] + self.batch_size)
        return jnp.where(place < c.size, place, -1), self.per_pass(c)

    def take(self, c: core.Client, positions, j, full: bool = False):
        """Returns the batch of step j, feature -> [B, ...]; without 'mask' (1 real, 0 padding) if all are `full`."""
        taken = lax.dynamic_slice(positions, (j * self.batch_size,), (self.batch_size,))
        rows = c.index[jnp.maximum(taken, 0)]
        batch = {name: values[rows] for name, values in c.examples.items()}
        return batch if full else batch | {"mask": (taken >= 0).astype(jnp.float32)}

    def count(self, batch):
        """Returns the number of examples in a batch, float []."""
        return jnp.sum(batch["mask"]) if "mask" in batch else jnp.asarray(float(self.batch_size))
