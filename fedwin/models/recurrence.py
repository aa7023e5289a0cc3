"""LSTM over entire sequences with a custom gradient that moves the weights' products out of the loop."""

import functools

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap

from fedwin.models.convolution import onednn


def _gates(z):
    """Returns s(z_i), tanh(z_g), s(z_f), s(z_o), [B, 4 H], with one tanh: s(z) = (1 + tanh(z / 2)) / 2."""
    half, one = (jnp.full(z.shape[-1] // 4, value, z.dtype) for value in (0.5, 1))
    scale = jnp.concatenate([half, one, half, half])
    return scale * jnp.tanh(scale * z) + (1 - scale)


def _loop(loop, *operands):
    """Returns loop(*operands): for float32 on a CPU, by one call of compiled code for all time steps, if there is any.

    Args:
      loop: `_hidden_states`, `_factors` or `_gates_gradient`, from whose derivatives those of the call come.
    """
    if not all(a.dtype == jnp.float32 for a in operands) or not onednn.is_available():
        return loop(*operands)
    call = lambda *operands: list(onednn.recurrence(jax.eval_shape(loop, *operands), *operands))
    called = custom_vmap(call)

    @called.def_vmap
    def _(clients, is_mapped, *operands):
        each = [a if m else jnp.broadcast_to(a, (clients, *a.shape)) for a, m in zip(operands, is_mapped, strict=True)]
        if any(m and a.ndim < 4 for a, m in zip(operands, is_mapped, strict=True)):
            results = list(jax.vmap(call)(*each))
        else:  # with the same weights they are rows of one batch
            rows = [jnp.moveaxis(a, 0, 1).reshape(a.shape[1], -1, a.shape[3]) for a in each if a.ndim == 4]
            weights = [a for a in operands if a.ndim < 3]
            apart = lambda a: jnp.moveaxis(a.reshape(len(a), clients, -1, a.shape[2]), 1, 0)
            results = [apart(a) for a in called(*rows, *weights)]
        return results, [True] * len(results)

    result = jax.custom_jvp(called)
    result.defjvp(lambda primals, tangents: jax.jvp(loop, primals, tangents))
    return result(*operands)


def _hidden_states(driven, w_h, bias, save: bool = False):
    """Returns [h], [T, B, H], and, if `save`, the factors that the gradient needs (see `_gates_gradient`)."""

    def step(carry, driven):
        h, c = carry
        i, g, f, o = jnp.split(_gates(driven + h @ w_h + bias), 4, axis=-1)
        new = f * c + i * g
        t = jnp.tanh(new)
        h = o * t
        if not save:
            return (h, new), [h]
        to_gates = jnp.concatenate([g * i * (1 - i), i * (1 - g * g), c * f * (1 - f), t * o * (1 - o)], axis=-1)
        return (h, new), [h, to_gates, o * (1 - t * t), f]

    zeros = jnp.zeros((driven.shape[1], w_h.shape[0]), driven.dtype)
    return lax.scan(step, (zeros, zeros), driven)[1]


_factors = functools.partial(_hidden_states, save=True)


def _gates_gradient(h_cotangent, to_gates, to_cell, f, w_h):
    """Returns [dz], [T, B, 4 H].

    dc_t += dh_t s(o) (1 - tanh(c_t)^2),  dz_t = (dc_t, dc_t, dc_t, dh_t) * to_gates,  dh_{t-1} += dz_t W_h^T
    """

    def step(carry, at):
        dh, dc = carry
        cotangent, to_gates, to_cell, f = at
        dh = dh + cotangent
        dc = dc + dh * to_cell
        dz = jnp.concatenate([dc, dc, dc, dh], axis=-1) * to_gates
        return (dz @ w_h.T, dc * f), [dz]

    zeros = jnp.zeros_like(f[0])
    return lax.scan(step, (zeros, zeros), (h_cotangent, to_gates, to_cell, f), reverse=True)[1]


def _forward(x, w_x, w_h, bias, loop):
    length, batch, size = x.shape
    # x_t W_x does not depend on the recurrence: one product for all time steps.
    return _loop(loop, (x.reshape(length * batch, size) @ w_x).reshape(length, batch, -1), w_h, bias)


@jax.custom_vjp
def lstm(x, w_x, w_h, bias):
    """Returns the hidden states [T, B, H] of an LSTM that starts from zeros (Hochreiter and Schmidhuber, 1997).

        i, g, f, o = x_t W_x + h_{t-1} W_h + b,  c_t = s(f) c_{t-1} + s(i) tanh(g),  h_t = s(o) tanh(c_t)

    for inputs [T, B, in], weights [in, 4 H] and [H, 4 H], and a bias [4 H]; reverse mode only.

    jax's gradient of this loop accumulates the gradient of W_h in every step and recomputes the gates. Here the forward
    loop saves d c_t / d z_t and d h_t / d z_t, the backward loop has one small product per step, and the gradients of
    the weights are products over all time steps: on a CPU a training step takes 0.7 of the time. There, both loops are
    calls of `convolution/onednn.cc` where it can be compiled, which packs W_h once for all time steps.

    Source: https://doi.org/10.1162/neco.1997.9.8.1735
    """
    return _forward(x, w_x, w_h, bias, _hidden_states)[0]


def _forward_with_residuals(x, w_x, w_h, bias):
    h, *factors = _forward(x, w_x, w_h, bias, _factors)
    return h, (x, w_x, w_h, h, factors)


def _backward(residuals, h_cotangent):
    x, w_x, w_h, h, factors = residuals
    (dz,) = _loop(_gates_gradient, h_cotangent, *factors, w_h)
    before = jnp.concatenate([jnp.zeros_like(h[:1]), h[:-1]])
    rows = lambda a: a.reshape(-1, a.shape[-1])
    # Without the barrier XLA transposes dz for these products, which copies it and halves their speed.
    dz = lax.optimization_barrier(rows(dz))
    weights = lambda a: lax.dot_general(rows(a), dz, (((0,), (0,)), ((), ())))
    return (dz @ w_x.T).reshape(x.shape), weights(x), weights(before), dz.sum(0)


lstm.defvjp(_forward_with_residuals, _backward)
