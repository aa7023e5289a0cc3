"""Schedules: functions of the 0-based round (int32 [], traced), and the meaning of `start=` as round or fraction."""

from collections.abc import Callable
from typing import Annotated

import jax.numpy as jnp

from fedwin.errors import UserError
from fedwin.registry.ranges import NonNegativeInt, Range


def as_schedule(value) -> Callable:
    """Returns `value` as a schedule.

    Args:
      value: a function of the round, or a constant.

    Returns:
      `value` if it is callable, else the function that always returns it.

    Example:
      >>> as_schedule(0.1)(7)
      0.1
    """
    return value if callable(value) else lambda round: value


def exponential(lr0: float, decay: float = 0.0):
    """Returns an exponentially decaying schedule of the 0-based round t.

        lr0 (1 - decay)^t

    Args:
      lr0: rate of round 0.
      decay: decay per round, in [0, 1).

    Returns:
      int32 [] -> float [].

    Raises:
      UserError: when decay is out of range.

    Example:
      >>> round(float(exponential(0.1, decay=0.5)(2)), 4)
      0.025
    """
    if not 0 <= decay < 1:
        raise UserError(f"lr_decay={decay} must lie in [0, 1).")
    return lambda round: lr0 * jnp.power(1 - decay, jnp.asarray(round, float))


def cosine(lr0: float, num_rounds: int):
    """Returns a schedule that decays from lr0 towards 0 over the 0-based rounds t of a run, along half a cosine.

        lr0 (1 + cos(pi t / T)) / 2 = lr0 sin^2(pi (T - t) / 2T)

    Args:
      lr0: rate of round 0.
      num_rounds: T.

    Returns:
      int32 [] -> float [].

    Example:
      >>> [round(float(cosine(0.1, num_rounds=4)(t)), 4) for t in range(4)]
      [0.1, 0.0854, 0.05, 0.0146]
    """
    # The sine form avoids the cancellation of 1 + cos near the end.
    return lambda round: lr0 * jnp.sin(jnp.pi / 2 * jnp.asarray(num_rounds - round, float) / num_rounds) ** 2


def warmup_stable_decay(lr0: float, num_rounds: int, share: float = 0.2):
    """Returns a constant schedule of the 0-based round t that falls towards 0 in the last rounds, linearly.

        lr0 min(1, (T - t) / (share T))

    This is the stable and the decay phase; `warmup` is the first. Two runs with it and without it train the same models
    until the decay begins, so that one can be a fork of the other.
    Reference: Hu et al., MiniCPM (https://arxiv.org/abs/2404.06395).

    Args:
      lr0: rate of round 0.
      num_rounds: T.
      share: share of the rounds in which the rate falls, in (0, 1].

    Returns:
      int32 [] -> float [].

    Example:
      >>> [round(float(warmup_stable_decay(0.1, num_rounds=10)(t)), 4) for t in (0, 8, 9)]
      [0.1, 0.1, 0.05]
    """
    return lambda round: lr0 * jnp.minimum(1.0, jnp.asarray(num_rounds - round, float) / (share * num_rounds))


def warmup(schedule: Callable, num_rounds: int, share: float):
    """Returns a schedule that first rises linearly over the 0-based rounds t to what another one gives.

        schedule(t) min(1, (t + 1) / (share T))

    Args:
      schedule: int32 [] -> float [].
      num_rounds: T.
      share: share of the rounds in which the rate rises, in (0, 1).

    Returns:
      int32 [] -> float [].

    Example:
      >>> [round(float(warmup(lambda t: 0.1, num_rounds=20, share=0.2)(t)), 4) for t in range(5)]
      [0.025, 0.05, 0.075, 0.1, 0.1]
    """
    return lambda round: schedule(round) * jnp.minimum(1.0, jnp.asarray(round + 1, float) / (share * num_rounds))


# A fraction of the rounds, or a 0-based round.
Start = Annotated[float, Range(0, 1)] | NonNegativeInt


def first_round(start: float, num_rounds: int, name: str) -> int:
    """Returns the 0-based round that a `start` parameter means.

    Args:
      start: a float in 0.0..1.0 is a fraction of num_rounds, an integer the 0-based round itself.
      num_rounds: T.
      name: the method that has the parameter, for error messages.

    Raises:
      UserError: when start is negative, or a fraction above 1, or not a number.

    Example:
      >>> first_round(0.75, 400, "ima"), first_round(10, 400, "ima")
      (300, 10)
    """
    if isinstance(start, bool) or not isinstance(start, (int, float)):
        raise UserError(f"{name}: start={start} is not a number; write 0.75 (fraction of the rounds) or 300 (round).")
    if not 0 <= start or (isinstance(start, float) and start > 1):
        raise UserError(f"{name}: start={start} must be a fraction in 0.0..1.0 or a 0-based round >= 0.")
    # The epsilon corrects products such as 0.29 * 100 = 28.999999999999996.
    return int(start * num_rounds + 1e-9) if isinstance(start, float) else start
