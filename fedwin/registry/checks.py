"""Checks of hyper-parameters and flags, made when a run is built and thus before anything is compiled."""

import math

import numpy as np

from fedwin.errors import UserError
from fedwin.registry.choices import MOST, nearest, shown


def number(
    owner: str, least: float = -math.inf, most: float = math.inf, *, open_least=False, open_most=False, **values
) -> None:
    """Checks that every value is a finite number in [least, most].

    Args:
      owner: what the values belong to, for the error line.
      least: lower end.
      most: upper end.
      open_least: exclude the lower end.
      open_most: exclude the upper end.
      values: name -> value.

    Raises:
      UserError: when one is not.
    """
    for name, value in values.items():
        fits = _is_number(value) and least <= value <= most
        if not fits or (open_least and value == least) or (open_most and value == most):
            kind = "a finite number" if isinstance(value, float) and not math.isfinite(value) else "a number"
            interval = _interval(least, most, open_least, open_most)
            raise UserError(f"{owner}: {name}={value} must be {kind} {interval}.")


def integer(owner: str, least: int = 1, **values) -> None:
    """Checks that every value is an integer from `least` to 2^31 - 1; None stands for a value that is not given.

    Raises:
      UserError: when one is not.
    """
    for name, value in values.items():
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not least <= value <= MOST:
            raise UserError(f"{owner}: {name}={value!r} must be an integer in {least}..{MOST}.")


def _is_number(value) -> bool:
    return not isinstance(value, bool) and isinstance(value, (int, float)) and math.isfinite(value)


def _interval(least, most, open_least, open_most) -> str:
    if most == math.inf:
        return f"{'>' if open_least else '>='} {least:g}" if least > -math.inf else "that is finite"
    return f"in {'(' if open_least else '['}{least:g}, {most:g}{')' if open_most else ']'}"


def one_of(owner: str, name: str, value, known) -> None:
    """Checks that a value is one of the known ones.

    Args:
      owner: what the value belongs to, for the error line; '' for a flag.
      name: of the value.
      value: what was given.
      known: what may be given.

    Raises:
      UserError: when it is not; the line names the nearest match.
    """
    if value not in known:
        words = ", ".join(map(shown, known))
        near = nearest(value, [k for k in known if k]) if isinstance(value, str) else ""
        raise UserError(f"{owner + ': ' if owner else ''}{name}={value} must be one of {words}.{near}")


def flag(owner: str, **values) -> None:
    """Checks that every value is True or False.

    Raises:
      UserError: when one is not.
    """
    for name, value in values.items():
        if not isinstance(value, bool):
            raise UserError(f"{owner}: {name}={value} must be true or false.")
