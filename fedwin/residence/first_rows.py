"""The rows that clients begin with."""

import jax
import jax.numpy as jnp
import numpy as np

from fedwin.core import Algorithm
from fedwin.residence.blocks import copy_rows


def init_rows(algorithm: Algorithm, params, ids, init_key, shardings=None):
    """Returns the table rows of clients that have not taken part yet, stacked along axis 0, in buffers of their own.

    Args:
      algorithm: its client_init makes them.
      params: the initial model.
      ids: the clients, int32 [n].
      init_key: draws what is random in them.
      shardings: which device holds what of them; None = one device, all.
    """

    def stacked(params, ids, key):
        # A copy, because jit may return one and the same buffer for outputs that are equal.
        return jax.tree.map(jnp.copy, jax.vmap(algorithm.client_init, (None, 0, None))(params, ids, key))

    return jax.jit(stacked, out_shardings=shardings)(params, ids, init_key)


def row_shapes(algorithm: Algorithm, params):
    """Returns the shapes and dtypes of one client's row."""
    return jax.eval_shape(algorithm.client_init, params, jax.ShapeDtypeStruct((), jnp.int32), jax.random.key(0))


def write_rows(table, ids, rows) -> None:
    """Writes rows [n, ...] into arrays [K, ...] in place."""
    for everyone, some in zip(jax.tree.leaves(table), jax.tree.leaves(rows), strict=True):
        copy_rows(everyone, ids, some)


class FirstRows:
    """Makes the rows that clients begin with.

    Args:
      algorithm: its client_init makes them.
      params: the initial model.
      init_key: draws what is random in them.
      together: how many are made at a time.

    Attributes:
      shapes: of one row.
    """

    def __init__(self, algorithm: Algorithm, params, init_key, together: int):
        self.shapes = row_shapes(algorithm, params)
        self.params, self.init_key, self.together = jax.tree.map(jnp.copy, params), init_key, together
        self._make = jax.jit(jax.vmap(algorithm.client_init, (None, 0, None)))

    def into(self, clients: np.ndarray, table, places: np.ndarray) -> None:
        """Writes the first rows of clients into given places of arrays [n, ...]."""
        for start in range(0, len(clients), self.together):
            some = clients[start : start + self.together]
            made = self._make(self.params, np.resize(some, self.together).astype(np.int32), self.init_key)
            write_rows(
                table, places[start : start + len(some)], jax.tree.map(lambda leaf: np.asarray(leaf)[: len(some)], made)
            )

    def __call__(self, clients: np.ndarray):
        """Returns the first rows of clients, [n, ...]."""
        table = jax.tree.map(lambda leaf: np.zeros((len(clients), *leaf.shape), leaf.dtype), self.shapes)
        self.into(clients, table, np.arange(len(clients)))
        return table
