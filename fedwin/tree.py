"""Arithmetic on pytrees of one structure, one line each."""

import jax
import jax.numpy as jnp

map = jax.tree.map


def zeros_like(a):
    return map(jnp.zeros_like, a)


def add(a, b):
    return map(jnp.add, a, b)


def sub(a, b):
    return map(jnp.subtract, a, b)


def mul(a, b):
    return map(jnp.multiply, a, b)


def scale(s, a):
    return map(lambda x: (s * x).astype(x.dtype), a)


def axpy(s, a, b):
    """Returns s * a + b, in the dtype of b."""
    return map(lambda x, y: (s * x + y).astype(y.dtype), a, b)


def lerp(t, a, b):
    """Returns (1 - t) * a + t * b, in the dtype of a."""
    return map(lambda x, y: ((1 - t) * x + t * y).astype(x.dtype), a, b)


def where(flag, a, b):
    """Returns a if the scalar `flag` holds, else b: nothing of the other side leaks, not even its NaN."""
    return map(lambda x, y: jnp.where(flag, x, y), a, b)


def squared_norm(a):
    return sum((jnp.sum(jnp.square(x)) for x in jax.tree.leaves(a)), jnp.zeros(()))


def norm(a):
    return jnp.sqrt(squared_norm(a))


def nbytes(a) -> int:
    """Returns the bytes of a tree of arrays or of jax.ShapeDtypeStruct."""
    return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(a))


def is_empty(a) -> bool:
    """Whether a tree has no leaf: () stands for 'no state', 'no statistics'."""
    return not jax.tree.leaves(a)


def is_key(leaf) -> bool:
    """Whether an array is one of PRNG keys, which have no bytes of their own."""
    return jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
