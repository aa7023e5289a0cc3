"""Registry of observers, and the types that they share."""

from typing import NamedTuple

import jax

from fedwin.core import Observer, Variables
from fedwin.observers.weights import Weights
from fedwin.registry import Registry


class Average(NamedTuple):
    """State of a running mean.

    Attributes:
      model: the mean.
      count: number of models in it, int32 [].
    """

    model: Variables
    count: jax.Array  # type: ignore[assignment]  # a tuple has a method of this name


class ReadOut(NamedTuple):
    """Specification of a WIMA read-out; one observer, and thus one ring buffer, serves all those of a run.

    Attributes:
      name: name of the read-out.
      window: W, models in the mean.
      part: 'all'; 'classifier' takes the last layer from the average and the rest from the model, 'features' the
        reverse.
      warmup: before round W, 'partial' returns the mean of the models so far, 'raw' the model itself.
      weights: weights of the models, newest first: 'uniform', another name of observers.WEIGHTS, or W numbers.
    """

    name: str
    window: int
    part: str = "all"
    warmup: str = "partial"
    weights: Weights = "uniform"


# Builders have the signature builder(setting, *, option=...) -> Observer or ReadOut.
OBSERVERS = Registry("observer", rule="rule", builds=(Observer, ReadOut))
