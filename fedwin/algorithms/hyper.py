"""Checks of hyper-parameters, made when an algorithm is built and thus before anything is compiled."""

import math

from fedwin.errors import UserError


def number(
    owner: str, least: float = -math.inf, most: float = math.inf, *, open_least=False, open_most=False, **values
):
    """Raises UserError unless every value is a finite number in [least, most] (open ends where said)."""
    for name, value in values.items():
        fits = _is_number(value) and least <= value <= most
        if not fits or (open_least and value == least) or (open_most and value == most):
            raise UserError(
                f"{owner}: {name}={value} must be a number {_interval(least, most, open_least, open_most)}."
            )


def _is_number(value) -> bool:
    return not isinstance(value, bool) and isinstance(value, (int, float)) and math.isfinite(value)


def _interval(least, most, open_least, open_most) -> str:
    if most == math.inf:
        return f"{'>' if open_least else '>='} {least:g}" if least > -math.inf else "that is finite"
    return f"in {'(' if open_least else '['}{least:g}, {most:g}{')' if open_most else ']'}"


def one_of(owner: str, name: str, value, choices) -> None:
    """Raises UserError unless `value` is one of `choices`."""
    if value not in choices:
        raise UserError(f"{owner}: {name}={value} must be one of {', '.join(map(str, choices))}.")


def common(owner: str, server_lr, weighting) -> None:
    """Checks the two hyper-parameters that every algorithm has."""
    number(owner, 0, open_least=True, server_lr=server_lr)
    one_of(owner, "weighting", weighting, ("samples", "uniform"))


def flag(owner: str, **values) -> None:
    """Raises UserError unless every value is True or False."""
    for name, value in values.items():
        if not isinstance(value, bool):
            raise UserError(f"{owner}: {name}={value} must be true or false.")
