"""Observers: averages that read a trajectory without changing it (WIMA, EMA, SWA at a constant rate).

Training with and without observers is bitwise the same. Every module of this package is imported, so a new file that
registers an observer needs no other change.
"""

from fedwin.observers.ema import ema
from fedwin.observers.registry import OBSERVERS, Average, SharedObserver, build_all
from fedwin.observers.swa import swa
from fedwin.observers.weights import WEIGHTS
from fedwin.observers.wima import ReadOut, mask_of_part, select, wima, wima_name, wima_reading
from fedwin.registry import import_all

import_all(__name__, __path__)

__all__ = [
    "OBSERVERS",
    "WEIGHTS",
    "Average",
    "ReadOut",
    "SharedObserver",
    "build_all",
    "ema",
    "mask_of_part",
    "select",
    "swa",
    "wima",
    "wima_name",
    "wima_reading",
]
