"""Group normalization with the addition and the ReLU that follow it, on a CPU as one compiled call per direction."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from fedwin import tree
from fedwin.models.convolution import onednn


class Options(NamedTuple):
    """Static arguments of `group_norm`."""

    groups: int
    epsilon: float
    relu: bool


def group_norm(x, scale, bias, add=None, *, groups: int, epsilon: float, relu: bool = False):
    """Normalizes x [B, *spatial, C] over all positions and each group of channels (Wu and He, 2018).

        y = (x - mean) / sqrt(var + epsilon) * scale + bias [+ add], or its ReLU

    In float32 on a CPU values and gradients are a compiled call each (`convolution/onednn.cc`), which read x once from
    memory; the gradient's computes mean and var again. Derivatives of any mode and order are defined.

    Raises:
      ValueError: if the groups do not divide C, scale and bias are not [C], or `add` has another shape than x.

    Source: https://arxiv.org/abs/1803.08494
    """
    channels = x.shape[-1]
    if groups < 1 or channels % groups:
        raise ValueError(f"{groups} groups do not divide {channels} channels")
    if not scale.shape == bias.shape == (channels,) or (add is not None and add.shape != x.shape):
        shapes = ", ".join(str(a.shape) for a in (x, scale, bias, add) if a is not None)
        raise ValueError(f"x, scale, bias [and add] have shapes {shapes}; expected x, [{channels}], [{channels}] [, x]")
    options = Options(groups, epsilon, relu)
    operands = (x, scale, bias) if add is None else (x, scale, bias, add)
    if not all(a.dtype == jnp.float32 for a in operands) or not onednn.is_available():
        return _values(options, *operands)
    rows = (a if a.ndim == 1 else a.reshape(len(a), -1, a.shape[-1]) for a in operands)
    return _called_values(options, *rows).reshape(x.shape)


# ------------------------------------------------------------------------------------------------- definitions


def _normalized(options: Options, x, scale, bias):
    """The sums run over the positions first and over a group's channels afterwards; then y = a x + b is one pass."""
    each = x.shape[-1] // options.groups
    wide = tree.at_least_float32(x.reshape(x.shape[0], -1, x.shape[-1]))
    count = wide.shape[1] * each

    def group_mean(sums):  # [B, C] -> the mean of each channel's group, [B, C]
        total = sums.reshape(-1, options.groups, each).sum(-1) / count
        return jnp.repeat(total, each, axis=-1)

    mean = group_mean(wide.sum(1))
    var = jnp.maximum(group_mean(jnp.square(wide).sum(1)) - jnp.square(mean), 0)
    factor = scale * lax.rsqrt(var + options.epsilon)
    y = wide * factor[:, None] + (bias - mean * factor)[:, None]
    return y.reshape(x.shape).astype(x.dtype)


def _values(options: Options, x, scale, bias, *add):
    y = sum(add, _normalized(options, x, scale, bias))
    return jax.nn.relu(y) if options.relu else y


def _passed(options: Options, y, t):
    return jnp.where(y > 0, t, 0) if options.relu else t


def _tangent(options: Options, x, y, scale, dx, dscale, dbias, *dadd):
    """Returns the tangent of y, linear in those of x, scale, bias [and add]."""
    normalized = functools.partial(_normalized, options)
    t = jax.jvp(normalized, (x, scale, jnp.zeros_like(scale)), (dx, dscale, dbias))[1]
    return _passed(options, y, sum(dadd, t))


def _gradients(options: Options, added: bool, dy, x, y, scale):
    """Returns the gradients of x, scale, bias [and add] from that of y: the transpose of `_tangent`."""
    t = _passed(options, y, dy)
    normalized = functools.partial(_normalized, options)
    return [*jax.vjp(normalized, x, scale, jnp.zeros_like(scale))[1](t), *[t] * added]


# ----------------------------------------------------------------------------------------------- compiled calls


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _called_values(options: Options, x, *rest):
    return onednn.normalization(jax.ShapeDtypeStruct(x.shape, x.dtype), x, *rest, **options._asdict())


@_called_values.defjvp
def _(options, primals, tangents):
    x, scale, *_ = primals
    y = _called_values(options, *primals)
    return y, _TANGENT.bind(x, y, scale, *tangents, options=options)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _called_gradients(options: Options, added: bool, *operands):
    shapes = jax.eval_shape(functools.partial(_gradients, options, added), *operands)
    return onednn.normalization(shapes, *operands, **options._asdict())


@_called_gradients.defjvp
def _(options, added, primals, tangents):
    return jax.jvp(functools.partial(_gradients, options, added), primals, tangents)


def _transposed(dy, x, y, scale, *tangents, options):
    if type(dy) is ad.Zero:
        return [None] * (3 + len(tangents))
    gradients = _called_gradients(options, len(tangents) > 3, dy, x, y, scale)
    linear = [g if ad.is_undefined_primal(t) else None for g, t in zip(gradients, tangents, strict=True)]
    return [None, None, None, *linear]


def _tangent_primitive() -> Primitive:
    """Returns `_tangent` as a primitive whose transpose is `_called_gradients`."""
    bound = lambda options: functools.partial(_tangent, options)
    run = lambda *operands, options: bound(options)(*operands)
    primitive = Primitive("fedwin_group_norm_tangent")
    primitive.def_impl(jax.jit(run, static_argnames="options"))
    primitive.def_abstract_eval(lambda x, *_, options: jax.core.ShapedArray(x.shape, x.dtype))
    mlir.register_lowering(primitive, mlir.lower_fun(run, multiple_results=False))
    ad.primitive_transposes[primitive] = _transposed
    ad.primitive_jvps[primitive] = lambda operands, tangents, options: jax.jvp(
        bound(options), operands, tuple(map(ad.instantiate_zeros, tangents))
    )
    batching.primitive_batchers[primitive] = lambda operands, axes, options: (
        jax.vmap(bound(options), tuple(axes))(*operands), 0
    )  # fmt: skip
    return primitive


_TANGENT = _tangent_primitive()
