"""The clients' learning rate and epochs while IMA averages: mild exploration."""

import jax.numpy as jnp

from fedwin.schedules import as_schedule

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


def dropped_epochs(base, first: int, period: int):
    """Returns the schedule `base` before round `first`, and one epoch less per `period` rounds from there on."""
    base = as_schedule(base)
    return lambda t: jnp.where(t < first, base(t), jnp.maximum(1, base(t) - jnp.maximum(t - first, 0) // period))
