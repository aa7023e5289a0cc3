"""The clients' learning rate and epochs while IMA averages: mild exploration."""

import jax.numpy as jnp

from fedwin.schedules import as_schedule

SCHEDULES = ("exp", "exp_compound", "const", "cyclic", "epoch", "none")


def ima_rate(base, first: int, schedule="exp", decay=0.03, low=5e-5, period=20, lr_restart=False):
    """Returns IMA's learning rate: `base` before round `first`, mild exploration from there on.

    With j = t - first, in round t >= first:

        exp             base(first) (1 - decay)^j
        exp_compound    base(t) (1 - decay)^j
        const           low
        cyclic          a sawtooth from base(first) to low
        epoch           base(t), or base(j) with lr_restart
        none            base(t)

    Args:
      base: the schedule without IMA.
      first: 0-based round that averaging begins at.
      schedule: one of SCHEDULES.
      decay: per round.
      low: the lowest rate.
      period: of the sawtooth.
      lr_restart: whether 'epoch' restarts the base schedule.
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
    """Returns IMA's local epochs: `base` before round `first`, then one less per `period` rounds, but at least 1.

    Args:
      base: epochs, a number or a schedule.
      first: 0-based round that averaging begins at.
      period: rounds per epoch less.
    """
    base = as_schedule(base)
    return lambda t: jnp.where(t < first, base(t), jnp.maximum(1, base(t) - jnp.maximum(t - first, 0) // period))
