"""Observers: averages that read a trajectory without changing it (WIMA, EMA, SWA at a constant rate).

Training with and without observers is bitwise the same. Every module of this package is imported, so a new file that
registers an observer needs no other change.
"""

from collections.abc import Iterable

from fedwin.core import Observer, Setting
from fedwin.errors import UserError
from fedwin.observers.ema import ema
from fedwin.observers.registry import OBSERVERS, Average, ReadOut
from fedwin.observers.swa import swa
from fedwin.observers.weights import WEIGHTS
from fedwin.observers.wima import mask_of_part, wima, wima_name, wima_of
from fedwin.registry import Choice, import_all

import_all(__name__, __path__)

__all__ = [
    "OBSERVERS",
    "WEIGHTS",
    "Average",
    "ReadOut",
    "build_all",
    "ema",
    "mask_of_part",
    "swa",
    "wima",
    "wima_name",
    "wima_of",
]


def build_all(choices: Iterable[str | Choice], setting: Setting) -> dict[str, Observer]:
    """Builds a run's observers.

    Args:
      choices: such as 'wima:window=50' or 'ema'.

    Returns:
      Name -> Observer; all read-outs of WIMA share one.

    Raises:
      UserError: when a choice is invalid or given twice.
    """
    built: dict[str, Observer | ReadOut] = {}
    for choice in choices:
        made = OBSERVERS.build(choice, setting)
        name = made.name if isinstance(made, ReadOut) else OBSERVERS.check(choice).name
        if name in built:
            raise UserError(f"observe={choice}: '{name}' is given twice; keep one.")
        built[name] = made
    readings = [made for made in built.values() if isinstance(made, ReadOut)]
    single = {name: made for name, made in built.items() if not isinstance(made, ReadOut)}
    return ({"wima": wima_of(readings, setting)} if readings else {}) | single
