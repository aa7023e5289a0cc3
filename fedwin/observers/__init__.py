"""Read-outs of a trajectory: WIMA, SWA at a constant rate, EMA. Training with and without them is bitwise the same.

A new file that registers an observer is found by itself.
"""

from fedwin.observers.ema import ema
from fedwin.observers.registry import OBSERVERS, Average, SharedObserver, build_all
from fedwin.observers.swa import swa
from fedwin.observers.wima import ReadOut, classifier_mask, select, wima, wima_reading
from fedwin.registry import import_all

import_all(__name__, __path__)

__all__ = [
    "OBSERVERS",
    "Average",
    "ReadOut",
    "SharedObserver",
    "build_all",
    "classifier_mask",
    "ema",
    "select",
    "swa",
    "wima",
    "wima_reading",
]
