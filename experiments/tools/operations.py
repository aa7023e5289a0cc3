"""Counts the operations of a benchmark's round, two per multiply-add of its products and convolutions.

XLA's cost analysis counts the body of a loop once and sees nothing of oneDNN's convolutions, so the count is that of
the traced gradient: times the length of each scan, and by the shapes of each convolution.
"""

import math

import jax
import jax.numpy as jnp
from jax.interpreters.partial_eval import dce_jaxpr

from fedwin import losses, models
from fedwin.models.convolution.lowering import jaxprs_in

from .peers.cases import Case

# Operand, or result (-1), of the package's convolutions that has the shape of the convolution's values; its kernel.
CONVOLUTIONS = {"values": (-1, 1), "of_input": (0, 1), "of_kernel": (1, -1)}


def of_jaxpr(jaxpr) -> int:
    """Returns the operations of a jaxpr, those of nested ones included."""
    total = 0
    for eqn in jaxpr.eqns:
        name, shapes = eqn.primitive.name, [v.aval.shape for v in (*eqn.invars, *eqn.outvars)]
        if name == "dot_general":
            (contracted, _), _ = eqn.params["dimension_numbers"]
            total += 2 * math.prod(shapes[-1]) * math.prod(shapes[0][axis] for axis in contracted)
        elif name.startswith("fedwin_convolution_"):
            values, kernel = (shapes[place] for place in CONVOLUTIONS[name.removeprefix("fedwin_convolution_")])
            total += 2 * math.prod(values) * math.prod(kernel[:-1])
        else:
            times = eqn.params["length"] if name == "scan" else 1
            inner = [times * of_jaxpr(each) for _, each in jaxprs_in(eqn)]
            total += max(inner) if name == "cond" else sum(inner)
    return total


def gradient(case: Case):
    """Returns the gradient of a local step's loss by the parameters as a function, and the shapes of its arguments."""
    model = models.build(case.model, case.shape, case.classes)
    loss = losses.cross_entropy(model)
    key = jax.eval_shape(lambda: jax.random.key(0))
    params, stats = jax.eval_shape(model.init, key)
    batch = {
        "x": jax.ShapeDtypeStruct((case.batch, *case.shape), jnp.int32 if case.vocabulary else jnp.float32),
        "y": jax.ShapeDtypeStruct((case.batch, *(case.shape if case.every else ())), jnp.int32),
        "mask": jax.ShapeDtypeStruct((case.batch,), jnp.float32),
    }
    return jax.grad(lambda params, *rest: loss(params, *rest, None)[0]), (params, stats, batch, key)


def of_round(case: Case) -> int:
    """Returns the operations of a round with one gradient per local step: clients x steps x those of the gradient."""
    function, shapes = gradient(case)
    jaxpr = jax.make_jaxpr(function)(*shapes).jaxpr
    return case.clients * case.steps * of_jaxpr(dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))[0])
