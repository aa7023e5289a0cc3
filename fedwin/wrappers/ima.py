"""Iterative moving averaging (IMA): the window's average is what goes on."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedwin import tree
from fedwin import window as windows
from fedwin.core import Variables
from fedwin.errors import UserError
from fedwin.schedules import as_schedule, first_round
from fedwin.wrappers.base import WRAPPERS, Wrapper, after, before, initial_stats, unchanged

SCHEDULES = ("exp", "exp_compound", "const", "cyclic", "epoch", "none")


def ima_rate(base, first: int, schedule="exp", decay=0.03, low=5e-5, period=20, lr_restart=False):
    """Returns IMA's learning rate: `base` before round `first`, mild exploration from there on (j = t - first).

    exp: base(first) (1 - decay)^j; exp_compound: base(t) (1 - decay)^j; const: low; cyclic: a sawtooth from
    base(first) to low; epoch, none: base(t), or base(j) with lr_restart.
    """

    def rate(t):
        j = jnp.maximum(t - first, 0)
        fade = jnp.power(1 - decay, jnp.asarray(j, float))
        top = base(jnp.asarray(first, jnp.int32))
        late = {
            "exp": lambda: top * fade,
            "exp_compound": lambda: base(t) * fade,
            "const": lambda: low,
            "cyclic": lambda: top + (low - top) * jnp.asarray(j % period + 1, float) / period,
            "epoch": lambda: base(j) if lr_restart else base(t),
            "none": lambda: base(t),
        }[schedule]()
        return jnp.where(t < first, base(t), jnp.asarray(late, float))

    return rate


class Averaging(NamedTuple):
    """window: of the aggregates; on: bool [], whether the model is their average by now."""

    window: windows.Window
    on: jax.Array


@WRAPPERS.register("ima", paper="zhou2023understanding")
def ima(
    setting,
    *,
    window=5,
    start=0.75,
    placement="post",
    reset="at_start",
    schedule="exp",
    decay=0.03,
    low=5e-5,
    period=20,
    lr_restart=False,
) -> Wrapper:
    """Iterative moving averaging: x_{t+1} = (1/P) sum_{tau = t-P+1 .. t} a_tau from round `start` on, a_t before.

    The window holds the aggregates a_t of the base method, never IMA models, and is filled before `start`; the average
    is broadcast and evaluated, whatever the base method evaluates by itself. Model statistics are averaged likewise.

    Args:
      window: P, models in the average.
      start: fraction of the rounds (0.75) or 0-based round (300).
      placement: 'post' averages the new server models; 'pre' averages the clients' means before the server optimiser.
      reset: of Adam's and Yogi's moments on the server in round `start`, for 'pre': 'none', 'at_start', 'one_round_only'.
      schedule: clients' learning rate from `start` on: exp, exp_compound, const, cyclic, epoch, none.
      decay: of exp and exp_compound, per round.
      low: rate of const, lowest rate of cyclic.
      period: rounds of a cycle (cyclic), or per epoch dropped (epoch).
      lr_restart: 'epoch' restarts the base schedule at `start`, as the released code does.

    Raises UserError for a hyper-parameter out of range. Zhou et al., Understanding and Improving Model Averaging in
    Federated Learning on Heterogeneous Data, 2023, https://arxiv.org/abs/2305.07845.
    """
    first = first_round(start, setting.num_rounds, "ima")
    windows.check_size("ima: window", window)
    windows.check_size("ima: period", period)
    for name, value, known in (("placement", placement, ("post", "pre")), ("schedule", schedule, SCHEDULES)):
        if value not in known:
            raise UserError(f"ima: {name}={value} must be one of {', '.join(known)}.")
    if not 0 <= decay < 1 or low <= 0:
        raise UserError(f"ima: decay={decay} must lie in [0, 1) and low={low} above 0.")
    if reset not in ("none", "at_start", "one_round_only"):
        raise UserError(f"ima: reset={reset} must be one of none, at_start, one_round_only.")
    # Averaging starts at full strength: not before the window is full.
    begin = max(first, window - 1)
    sizes = (window,)

    def empty(values):
        packing = windows.flat(values)
        return windows.init(packing.size, sizes, packing.dtype)

    def averaged(own, values, round):
        """Pushes a_t; returns the window and what replaces a_t."""
        packing = windows.flat(values)
        own = windows.push(own, packing.pack(values), sizes)
        # A window of one model is that model, to the bit.
        mean = values if window == 1 else packing.unpack(windows.mean(own, 0, window))
        return own, tree.where(round >= begin, mean, values)

    def wrap(algorithm):
        stats = jax.eval_shape(lambda key: initial_stats(setting, key), jax.random.key(0))
        if placement == "post":
            init = lambda params, inner, key: Averaging(empty(Variables(params, stats)), jnp.zeros((), bool))

            def smooth(own, model, inner, round):
                window, model = averaged(own.window, model, round)
                return Averaging(window, jnp.asarray(round >= begin)), model

            def evaluated(model, state):
                return tree.where(state.own.on, model, algorithm.eval_model(model, state.inner))

            # A window of one model is the base method, in what it evaluates too.
            return after(algorithm, init, smooth, None if window == 1 else evaluated)

        def update(own, params, delta, round):
            own, target = averaged(own, tree.add(params, delta), round)
            if window == 1:
                return own, delta
            return own, tree.where(round >= begin, tree.sub(target, params), delta)

        algorithm = before(algorithm, empty, update, reset, begin)
        if not jax.tree.leaves(stats):
            return algorithm

        def smooth(own, model, inner, round):
            own, mean = averaged(own, model.stats, round)
            return own, model._replace(stats=mean)

        return after(algorithm, lambda params, inner, key: empty(stats), smooth)

    def rate(base):
        return ima_rate(as_schedule(base), first, schedule, decay, low, period, lr_restart)

    def epochs(base):
        base = as_schedule(base)
        return lambda t: jnp.where(t < first, base(t), jnp.maximum(1, base(t) - jnp.maximum(t - first, 0) // period))

    return Wrapper(
        "ima",
        wrap,
        rate=unchanged if schedule == "none" else rate,
        epochs=epochs if schedule == "epoch" else unchanged,
    )
