"""Operations of matrix products, counted in a traced function: the work that a peak is compared with.

XLA's own count takes the body of a loop once and what a vendor's library computes not at all, so it is no measure on an
accelerator.
"""

import math

import jax

from fedwin.models.convolution.lowering import jaxprs_in


def _inside(eqn):
    """Yields (how often it runs, jaxpr) of what an equation carries; of branches the largest counts."""
    jaxprs = [jaxpr for _, jaxpr in jaxprs_in(eqn)]
    if eqn.primitive.name == "cond" and jaxprs:
        jaxprs = [max(jaxprs, key=_of)]
    times = eqn.params["length"] if eqn.primitive.name == "scan" else 1
    yield from ((times, item) for item in jaxprs)


def _of(jaxpr) -> int:
    total = 0
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == "dot_general":
            (contracted, _), _ = eqn.params["dimension_numbers"]
            shape = eqn.invars[0].aval.shape
            total += 2 * eqn.outvars[0].aval.size * math.prod(shape[axis] for axis in contracted)
        elif eqn.primitive.name == "conv_general_dilated":
            raise ValueError("a convolution is not counted; map it over one client, which makes products of it")
        else:
            total += sum(times * _of(inside) for times, inside in _inside(eqn))
    return total


def flops(function, *args) -> int:
    """Returns two operations for every multiplication in the matrix products of a function; nothing is computed.

    >>> import jax.numpy as jnp
    >>> flops(lambda a: jnp.tanh(a @ a), jnp.zeros((3, 3)))
    54
    """
    return _of(jax.make_jaxpr(function)(*args).jaxpr)
