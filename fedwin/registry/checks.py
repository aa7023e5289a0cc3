"""Checks of hyper-parameters and flags, made while a run is prepared and thus before compilation."""

import math

import numpy as np

from fedwin.errors import UserError
from fedwin.registry.choices import INT32_MAX, format_value, nearest
from fedwin.registry.ranges import SMALLEST, Range


def number(
    owner: str, least: float = -math.inf, most: float = math.inf, *, open_least=False, open_most=False, **values
) -> None:
    """Checks that every value is a finite number in [least, most].

    Args:
      owner: object that the values belong to, for the message.
      least: lower end of the interval.
      most: upper end of the interval.
      open_least: whether to exclude the lower end.
      open_most: whether to exclude the upper end.
      values: name -> value.

    Raises:
      UserError: when a value is not.
    """
    interval = Range(least, most, open_least, open_most)
    for name, value in values.items():
        number = not isinstance(value, bool) and isinstance(value, (int, float))
        if number and 0 < abs(value) < SMALLEST:
            raise UserError(f"{owner}: {name}={value} is 0 in 32-bit arithmetic; set 0, or at least {SMALLEST:.1e}.")
        if not number or not interval.holds(value):
            kind = "a finite number" if isinstance(value, float) and not math.isfinite(value) else "a number"
            raise UserError(f"{owner}: {name}={value} must be {kind} {interval}.")


def integer(owner: str, least: int = 1, **values) -> None:
    """Checks that every value is an integer from `least` to 2^31 - 1, or None.

    Args:
      owner: object that the values belong to, for the message.
      least: smallest accepted value.
      values: name -> value; None stands for a value that is not given.

    Raises:
      UserError: when a value is not.
    """
    for name, value in values.items():
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not least <= value <= INT32_MAX:
            raise UserError(f"{owner}: {name}={value!r} must be an integer in {least}..{INT32_MAX}.")


def one_of(owner: str, name: str, value, allowed) -> None:
    """Checks that a value is one of the allowed ones.

    Args:
      owner: object that the value belongs to, for the message; '' for a flag.
      name: name of the value.
      value: the value.
      allowed: the allowed values.

    Raises:
      UserError: when it is not; the message names the nearest match.
    """
    if value not in allowed:
        values = ", ".join(map(format_value, allowed))
        suggestion = nearest(value, [other for other in allowed if other]) if isinstance(value, str) else ""
        raise UserError(f"{owner + ': ' if owner else ''}{name}={value} must be one of {values}.{suggestion}")


def flag(owner: str, **values) -> None:
    """Checks that every value is True or False.

    Args:
      owner: object that the values belong to, for the message.
      values: name -> value.

    Raises:
      UserError: when a value is not.
    """
    for name, value in values.items():
        if not isinstance(value, bool):
            raise UserError(f"{owner}: {name}={value} must be true or false.")
