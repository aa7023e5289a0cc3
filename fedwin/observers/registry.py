"""The registry of observers, and the state that running means share."""

from typing import NamedTuple

import jax

from fedwin.core import Variables
from fedwin.registry import Registry

OBSERVERS = Registry("observer")


class Average(NamedTuple):
    """model: the running mean; count: int32 [], models in it."""

    model: Variables
    count: jax.Array
