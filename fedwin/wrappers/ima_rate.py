"""IMA's schedules: the clients' learning rate and epochs while models are averaged (mild exploration)."""

from typing import Literal

import jax.numpy as jnp

from fedwin.schedules import as_schedule

Schedule = Literal["exp", "exp_compound", "const", "cyclic", "epoch", "none"]


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
      first: 0-based round at which averaging starts.
      schedule: one of Schedule.
      decay: per round, in [0, 1).
      low: the lowest rate.
      period: of the sawtooth, in rounds.
      lr_restart: whether 'epoch' restarts the base schedule.

    Returns:
      The schedule, int32 [] -> float [].

    Example:
      >>> rate = ima_rate(lambda round: 0.1, first=2, schedule="exp", decay=0.5)
      >>> [round(float(rate(jnp.int32(t))), 4) for t in range(5)]
      [0.1, 0.1, 0.1, 0.05, 0.025]
    """

    def rate(t):
        j = jnp.maximum(t - first, 0)
        decayed = jnp.power(1 - decay, jnp.asarray(j, float))
        top = base(jnp.asarray(first, jnp.int32))
        explored = {
            "exp": lambda: top * decayed,
            "exp_compound": lambda: base(t) * decayed,
            "const": lambda: low,
            "cyclic": lambda: top + (low - top) * jnp.asarray(j % period + 1, float) / period,
            "epoch": lambda: base(j) if lr_restart else base(t),
            "none": lambda: base(t),
        }[schedule]()
        return jnp.where(t < first, base(t), jnp.asarray(explored, float))

    return rate


def dropped_epochs(base, first: int, period: int):
    """Returns IMA's local epochs: `base` before round `first`, then one less per `period` rounds, but at least 1.

    Args:
      base: epochs, a number or a schedule.
      first: 0-based round at which averaging starts.
      period: rounds per dropped epoch.

    Returns:
      The schedule, int32 [] -> int32 [].

    Example:
      >>> epochs = dropped_epochs(3, first=1, period=2)
      >>> [int(epochs(jnp.int32(t))) for t in range(6)]
      [3, 3, 3, 2, 2, 1]
    """
    base = as_schedule(base)
    return lambda t: jnp.where(t < first, base(t), jnp.maximum(1, base(t) - jnp.maximum(t - first, 0) // period))
