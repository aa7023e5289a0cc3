"""Schedules: functions of the 0-based round (int32 [], traced), and how a `start=` is read."""

from collections.abc import Callable

import jax.numpy as jnp

from fedwin.errors import UserError


def as_schedule(value) -> Callable:
    """Returns `value` if it is a function of the round, else the function that is always `value`."""
    return value if callable(value) else lambda round: value


def exponential(lr0: float, decay: float = 0.0):
    """Returns an exponentially decaying schedule of the 0-based round t.

        lr0 (1 - decay)^t

    Args:
      lr0: rate of round 0.
      decay: in [0, 1).

    Raises:
      UserError: for another decay.
    """
    if not 0 <= decay < 1:
        raise UserError(f"lr_decay={decay} must lie in [0, 1).")
    return lambda round: lr0 * jnp.power(1 - decay, jnp.asarray(round, float))


def cosine(lr0: float, num_rounds: int):
    """Returns a schedule that falls from lr0 towards 0 over the 0-based rounds t of a run, along half a cosine.

        lr0 (1 + cos(pi t / T)) / 2 = lr0 sin^2(pi (T - t) / 2T)

    Args:
      lr0: rate of round 0.
      num_rounds: T.
    """
    # The sine keeps the digits that 1 + cos loses towards the end.
    return lambda round: lr0 * jnp.sin(jnp.pi / 2 * jnp.asarray(num_rounds - round, float) / num_rounds) ** 2


def first_round(start, num_rounds: int, name: str) -> int:
    """Returns the 0-based round that `start` means.

    Args:
      start: a float is a fraction of num_rounds, an integer the round itself.
      num_rounds: T.
      name: whose start, for error lines.

    Raises:
      UserError: for a negative start or a fraction above 1.
    """
    if isinstance(start, bool) or not isinstance(start, (int, float)):
        raise UserError(f"{name}: start={start} is not a number; write 0.75 (fraction of the rounds) or 300 (round).")
    if not 0 <= start or (isinstance(start, float) and start > 1):
        raise UserError(f"{name}: start={start} must be a fraction in 0.0..1.0 or a 0-based round >= 0.")
    # The smallest epsilon against 0.29 * 100 = 28.999999999999996.
    return int(start * num_rounds + 1e-9) if isinstance(start, float) else start
