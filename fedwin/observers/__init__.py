"""Read-outs of a trajectory: WIMA, SWA at a constant rate, EMA. Training with and without them is bitwise the same."""

from fedwin.observers.ema import ema
from fedwin.observers.registry import OBSERVERS, Average
from fedwin.observers.swa import swa
from fedwin.observers.wima import Reading, classifier_mask, select, wima, wima_reading

__all__ = ["OBSERVERS", "Average", "Reading", "classifier_mask", "ema", "select", "swa", "wima", "wima_reading"]
