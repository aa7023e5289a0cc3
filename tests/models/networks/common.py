"""Helpers of the tests of networks: variables and batches of the right shapes."""

import math

import jax
import jax.numpy as jnp
import numpy as np

from fedwin.core import Variables
from fedwin.testing import compile_options

CIFAR, GRAY, TEXT = (32, 32, 3), (28, 28, 1), (80,)


def abstract(model) -> Variables:
    return jax.eval_shape(model.init, jax.random.key(0))


def drawn(model) -> Variables:
    """Variables of the right shapes from NumPy: compiling an initializer takes longer than the tests themselves."""
    generator = np.random.default_rng(0)
    draw = lambda leaf: jnp.asarray(generator.standard_normal(leaf.shape) * 0.1, leaf.dtype)
    return jax.tree.map(draw, abstract(model))


def batch_of(shape, size=3, seed=0, vocab=80):
    generator = np.random.default_rng(seed)
    if len(shape) == 1:
        return {"x": jnp.asarray(generator.integers(0, vocab, (size, *shape)), jnp.int32)}
    return {"x": jnp.asarray(generator.standard_normal((size, *shape)), jnp.float32)}


def images(size=3, side=8, channels=1):
    return batch_of((side, side, channels), size)["x"]


def run(model, variables, batch, seed=0, train=False):
    apply = jax.jit(model.apply, static_argnums=3, compiler_options=compile_options())
    return apply(variables, batch, jax.random.key(seed), train)


def count(tree) -> int:
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(tree))
