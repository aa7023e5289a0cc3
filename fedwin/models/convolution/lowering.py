"""Replaces convolutions and max-pools of a traced function, so that external networks run unmodified.

A function is traced to a jaxpr, whose `conv_general_dilated` and `reduce_window_max` equations are replaced by those of
fedwin.models.convolution; all other equations are evaluated unchanged.
"""

import functools
import warnings

import jax
import jax.numpy as jnp
from jax.extend import core

from fedwin.models.convolution.conv import conv_general_dilated
from fedwin.models.convolution.pooling import max_pool

_TARGETS = ("conv_general_dilated", "reduce_window_max")
_OPTIONS: tuple[str, ...] = ("window_strides", "padding", "lhs_dilation", "rhs_dilation", "dimension_numbers")
_OPTIONS += ("feature_group_count", "batch_group_count", "precision", "preferred_element_type")


def jaxprs_in(eqn):
    """Yields (parameter's name, jaxpr) for each jaxpr among an equation's parameters."""
    for name, value in eqn.params.items():
        for item in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(item, core.ClosedJaxpr):
                yield name, item.jaxpr
            elif isinstance(item, core.Jaxpr):
                yield name, item


def _has_targets(jaxpr) -> bool:
    """Whether a jaxpr contains a convolution or max-pool at any depth."""
    return any(
        eqn.primitive.name in _TARGETS or any(_has_targets(inner) for _, inner in jaxprs_in(eqn)) for eqn in jaxpr.eqns
    )


def _max_pool(x, params):
    """Returns the max over NHWC windows, or None for another kind of window."""
    window, strides, padding = params["window_dimensions"], params["window_strides"], params["padding"]
    dilated = any(d != 1 for d in (*params["base_dilation"], *params["window_dilation"]))
    edges = (window[0], window[-1], strides[0], strides[-1])
    plain = x.ndim >= 3 and edges == (1, 1, 1, 1) and not any((*padding[0], *padding[-1]))
    if dilated or not plain or not jnp.issubdtype(x.dtype, jnp.floating):  # max_pool pads with -inf
        return None
    return max_pool(x, window[1:-1], strides[1:-1], padding[1:-1])


def _closed(closed):
    """Returns a ClosedJaxpr with the replacements made."""
    return jax.make_jaxpr(functools.partial(_evaluate, closed.jaxpr, closed.consts))(*closed.in_avals)


def _nested(eqn, values):
    """Evaluates an equation whose parameters contain a jaxpr with targets; returns None if it stays as it is."""
    name, params = eqn.primitive.name, dict(eqn.params)
    if name in ("remat2", "checkpoint", "remat"):
        body = functools.partial(_evaluate, params["jaxpr"], ())
        return jax.checkpoint(body, prevent_cse=params["prevent_cse"], policy=params["policy"])(*values)
    if name in ("jit", "pjit", "closed_call", "core_call"):
        inside = params.get("jaxpr") or params["call_jaxpr"]
        return _evaluate(inside.jaxpr, inside.consts, *values)
    if name not in ("scan", "while", "cond"):  # among them custom_jvp and custom_vjp, whose rules are the author's
        warnings.warn(
            f"a convolution inside '{name}' stays as it is; under vmap over clients it becomes a grouped convolution, "
            "2 to 46 times slower than patches @ kernel on a CPU.",
            stacklevel=2,
        )
        return None
    for key, value in params.items():
        if isinstance(value, core.ClosedJaxpr):
            params[key] = _closed(value)
        elif isinstance(value, tuple) and value and isinstance(value[0], core.ClosedJaxpr):
            params[key] = tuple(_closed(item) for item in value)
    return eqn.primitive.bind(*values, **params)


def _evaluate(jaxpr, consts, *args):
    """Evaluates an open jaxpr with the replacements made; returns a list of values."""
    environment = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *args)))
    read = lambda atom: atom.val if isinstance(atom, core.Literal) else environment[atom]
    for eqn in jaxpr.eqns:
        values = [read(atom) for atom in eqn.invars]
        name = eqn.primitive.name
        out = None
        if name == "conv_general_dilated":
            out = conv_general_dilated(*values, **{option: eqn.params[option] for option in _OPTIONS})
        elif name == "reduce_window_max":
            out = _max_pool(*values, eqn.params)
        elif any(_has_targets(inner) for _, inner in jaxprs_in(eqn)):
            out = _nested(eqn, values)
        if out is None:
            bound = eqn.primitive.get_bind_params(eqn.params)
            subfuns, params = bound if isinstance(bound, tuple) else ((), bound)  # older jax: (functions, params)
            with eqn.ctx.manager:
                out = eqn.primitive.bind(*subfuns, *values, **params)
        outs = out if eqn.primitive.multiple_results else [out]
        environment.update(zip(eqn.outvars, outs))
    return [read(atom) for atom in jaxpr.outvars]


def lower_convolutions(function):
    """Returns `function` with its convolutions and max-pools replaced by those of fedwin.models.convolution.

    Equations inside jit, remat, scan, while and cond are also replaced. A convolution inside another kind of equation,
    such as a function with a custom derivative (custom_jvp, custom_vjp), is left unchanged with a warning.
    """

    @functools.wraps(function)
    def lowered(*args):
        closed, shape = jax.make_jaxpr(function, return_shape=True)(*args)
        leaves = jax.tree.leaves(args)
        if not _has_targets(closed.jaxpr):
            return jax.tree.unflatten(jax.tree.structure(shape), core.jaxpr_as_fun(closed)(*leaves))
        out = _evaluate(closed.jaxpr, closed.consts, *leaves)
        return jax.tree.unflatten(jax.tree.structure(shape), out)

    return lowered
