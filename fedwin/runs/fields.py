"""Types and ranges of the fields of a Config."""

import math
from collections.abc import Mapping
from typing import Any

from fedwin.errors import UserError
from fedwin.registry.checks import one_of

# Counts live in int32 on the device.
MOST = 2**31 - 1

# Fields that are lists of integers.
INTEGERS = ("seeds", "keep_rounds")

_KINDS = {int: "an integer", float: "a number", str: "text", bool: "True or False"}


def check_type(name: str, default: Any, value: Any) -> None:
    """Raises UserError unless a value is of its field's type.

    Args:
      name: of the field.
      default: its default.
      value: what is given.
    """
    kind = type(default)
    if kind is list:
        if not isinstance(value, (list, tuple)):
            raise UserError(f"{name}={value!r} must be a list.")
        if name not in INTEGERS and not all(isinstance(item, str) for item in value):
            raise UserError(f"{name}={value!r} must be a list of texts.")
        return
    accepted = (int, float) if kind is float else (kind,)
    if not isinstance(value, accepted) or (isinstance(value, bool) and kind is not bool):
        raise UserError(f"{name}={value!r} must be {_KINDS[kind]}.")


def check_range(name: str, bounds: Mapping[str, Any], value: Any) -> None:
    """Raises UserError unless a value lies where its field's values do.

    Args:
      name: of the field.
      bounds: its 'least', 'below' and 'words'.
      value: what is given.
    """
    least, below = bounds["least"], bounds["below"]
    if bounds["words"]:
        one_of("", name, value, bounds["words"])
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return
    if not math.isfinite(value):
        raise UserError(f"{name}={value} must be a finite number.")
    if below is not None and not least <= value < below:
        raise UserError(f"{name}={value} must lie in [{least}, {below}).")
    if least is not None and value < least:
        raise UserError(
            f"{name}={value} must not be negative." if least == 0 else f"{name}={value} must be at least {least}."
        )
    if isinstance(value, int) and value > MOST:
        raise UserError(f"{name}={value} must be at most {MOST}: counts are 32-bit integers on the device.")
