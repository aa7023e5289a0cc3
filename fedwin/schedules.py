"""Schedules: functions of the 0-based round t of T, int32 [] (traced) -> float [], and the meaning of `start=`.

`lr0` is the rate of round 0, and `num_rounds` T.
"""

from collections.abc import Callable
from typing import Annotated

import jax.numpy as jnp

from fedwin.errors import UserError
from fedwin.registry.ranges import NonNegativeInt, Range


def as_schedule(value) -> Callable:
    """Returns a schedule unchanged, or, for a constant, the function that always returns it.

    Example:
      >>> as_schedule(0.1)(7)
      0.1
    """
    return value if callable(value) else lambda round: value


def exponential(lr0: float, decay: float = 0.0):
    """Returns an exponentially decaying schedule; UserError unless the decay per round is in [0, 1).

        lr0 (1 - decay)^t

    Example:
      >>> round(float(exponential(0.1, decay=0.5)(2)), 4)
      0.025
    """
    if not 0 <= decay < 1:
        raise UserError(f"lr_decay={decay} must lie in [0, 1).")
    return lambda round: lr0 * jnp.power(1 - decay, jnp.asarray(round, float))


def cosine(lr0: float, num_rounds: int):
    """Returns a schedule that decays from lr0 toward 0 along half a cosine.

        lr0 (1 + cos(pi t / T)) / 2 = lr0 sin^2(pi (T - t) / 2T)

    Example:
      >>> [round(float(cosine(0.1, num_rounds=4)(t)), 4) for t in range(4)]
      [0.1, 0.0854, 0.05, 0.0146]
    """
    # The sine form avoids the cancellation of 1 + cos near the end; one more round has the rate of the last.
    return lambda t: lr0 * jnp.sin(jnp.pi / 2 * jnp.asarray(jnp.maximum(num_rounds - t, 1), float) / num_rounds) ** 2


def warmup_stable_decay(lr0: float, num_rounds: int, share: float = 0.2):
    """Returns a constant schedule that falls linearly toward 0 in the last rounds.

        lr0 min(1, (T - t) / (share T))

    This is the stable and the decay phase; `warmup` is the first. Runs with and without the decay train the same models
    until it begins, so one can be forked from the other.
    Reference: Hu et al., MiniCPM (https://arxiv.org/abs/2404.06395).

    Args:
      share: share of the rounds over which the rate falls, in (0, 1].

    Example:
      >>> [round(float(warmup_stable_decay(0.1, num_rounds=10)(t)), 4) for t in (0, 8, 9)]
      [0.1, 0.1, 0.05]
    """
    left = lambda round: jnp.asarray(jnp.maximum(num_rounds - round, 1), float)
    return lambda round: lr0 * jnp.minimum(1.0, left(round) / (share * num_rounds))


def warmup(schedule: Callable, num_rounds: int, share: float):
    """Returns a schedule that first rises linearly to another one, over a share of the rounds in (0, 1).

        schedule(t) min(1, (t + 1) / (share T))

    Example:
      >>> [round(float(warmup(lambda t: 0.1, num_rounds=20, share=0.2)(t)), 4) for t in range(5)]
      [0.025, 0.05, 0.075, 0.1, 0.1]
    """
    return lambda round: schedule(round) * jnp.minimum(1.0, jnp.asarray(round + 1, float) / (share * num_rounds))


# A fraction of the rounds, or a 0-based round. The fraction 1 would be after the last round.
Start = Annotated[float, Range(0, 1, open_most=True)] | NonNegativeInt


def first_round(start: float, num_rounds: int, name: str) -> int:
    """Returns the 0-based round that a `start` parameter means.

    Args:
      start: a float in [0, 1) is a fraction of the rounds, an integer the 0-based round itself; UserError for others.
      name: the method that has the parameter, for error messages.

    Example:
      >>> first_round(0.29, 100, "ima"), first_round(10, 400, "ima")
      (29, 10)
    """
    if isinstance(start, bool) or not isinstance(start, (int, float)):
        raise UserError(f"{name}: start={start} is not a number; write 0.75 (fraction of the rounds) or 300 (round).")
    if not 0 <= start or (isinstance(start, float) and start >= 1):
        raise UserError(f"{name}: start={start} must be a fraction in [0, 1) or a 0-based round >= 0.")
    # The epsilon corrects products such as 0.29 * 100 = 28.999999999999996.
    return int(start * num_rounds + 1e-9) if isinstance(start, float) else start
