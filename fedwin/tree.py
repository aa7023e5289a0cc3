"""Arithmetic on pytrees of the same structure, and predicates on their leaves."""

from typing import Any

import jax
import jax.numpy as jnp

# A tree of arrays, or of their shapes: nested tuples, lists, dicts and NamedTuples. An empty one has no leaves.
PyTree = Any

map = jax.tree.map


def zeros_like(a):
    """Returns zeros of the shapes and dtypes of a."""
    return map(jnp.zeros_like, a)


def add(a, b):
    """Returns a + b."""
    return map(jnp.add, a, b)


def sub(a, b):
    """Returns a - b."""
    return map(jnp.subtract, a, b)


def mul(a, b):
    """Returns a * b, elementwise."""
    return map(jnp.multiply, a, b)


def scale(s, a):
    """Returns s * a for a scalar s, in the dtype of a."""
    return map(lambda x: (s * x).astype(x.dtype), a)


def axpy(s, a, b):
    """Returns s * a + b for a scalar s, in the dtype of b."""
    return map(lambda x, y: (s * x + y).astype(y.dtype), a, b)


def lerp(t, a, b):
    """Returns (1 - t) * a + t * b for a scalar t, in the dtype of a."""
    return map(lambda x, y: ((1 - t) * x + t * y).astype(x.dtype), a, b)


def at_least_float32(a):
    """Returns a with its leaves in float32, or unchanged where their dtype is wider."""
    return jax.tree.map(lambda x: x.astype(jnp.promote_types(x.dtype, jnp.float32)), a)


def like(a, b):
    """Returns b in the dtypes of a."""
    return map(lambda x, y: y.astype(x.dtype), a, b)


def copy(a):
    """Returns a copy of a in new buffers, without weak dtypes such as those of Python numbers."""
    return map(lambda x: jnp.array(x, x.dtype, copy=True), a)


def where(flag, a, b):
    """Returns a if the scalar `flag` is true, else b; NaN in the other tree has no effect."""
    return map(lambda x, y: jnp.where(flag, x, y), a, b)


def normal(a, key, deviation):
    """Returns independent Gaussian noise with a given standard deviation, in the shapes and dtypes of a."""
    leaves, structure = jax.tree.flatten(a)
    keys = [jax.random.fold_in(key, number) for number in range(len(leaves))]
    drawn = [(deviation * jax.random.normal(key, x.shape, x.dtype)).astype(x.dtype) for key, x in zip(keys, leaves)]
    return structure.unflatten(drawn)


def squared_norm(a):
    """Returns the sum of squares of all elements, []."""
    return sum((jnp.sum(jnp.square(x)) for x in jax.tree.leaves(at_least_float32(a))), jnp.zeros(()))


def norm(a):
    """Returns the Euclidean norm of all elements, []."""
    return jnp.sqrt(squared_norm(a))


def nbytes(a) -> int:
    """Returns the number of bytes of a tree of arrays or of jax.ShapeDtypeStruct."""
    return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(a))


def is_empty(a) -> bool:
    """Whether a tree has no leaves; () stands for 'no state' or 'no statistics'."""
    return not jax.tree.leaves(a)


def nodes(a, *kinds) -> list:
    """Returns the nodes of a that are of one of these types, such as core.Mean; not those inside of them."""
    is_one = lambda node: isinstance(node, kinds)
    return [node for node in jax.tree.leaves(a, is_leaf=is_one) if is_one(node)]


def map_nodes(function, a, *kinds):
    """Returns a with a function applied to its nodes of these types, as in `nodes`; other leaves do not change."""
    is_one = lambda node: isinstance(node, kinds)
    return map(lambda node: function(node) if is_one(node) else node, a, is_leaf=is_one)


def named(a, is_leaf=None) -> dict[str, Any]:
    """Returns name -> leaf of a, in their order; 'state.own.sums.0' has the keys on the path to the leaf."""
    leaves = jax.tree_util.tree_leaves_with_path(a, is_leaf=is_leaf)
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in leaves}


def alike(a, b) -> bool:
    """Whether two trees have the same structure, and leaves of the same shapes and dtypes."""
    shapes = lambda values: jax.tree.map(lambda x: (jnp.shape(x), jnp.result_type(x)), values)
    return shapes(a) == shapes(b)


def is_key(leaf) -> bool:
    """Whether an array consists of typed PRNG keys, which numpy cannot represent."""
    return jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
