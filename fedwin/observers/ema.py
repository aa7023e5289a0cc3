"""Exponential moving average (EMA) of the evaluated model."""

import jax.numpy as jnp

from fedwin import tree
from fedwin.core import Observer, Setting
from fedwin.observers.registry import OBSERVERS, Average
from fedwin.registry.ranges import Decay


@OBSERVERS.register("ema", paper="polyak1992acceleration")
def ema(setting: Setting, *, decay: Decay = 0.99) -> Observer:
    """EMA: e <- decay e + (1 - decay) w, of the evaluated model; e_0 is the first round's.

    Args:
      decay: memory of the average.

    Source: Polyak and Juditsky, Acceleration of Stochastic Approximation by Averaging, 1992,
    https://doi.org/10.1137/0330046.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("fedavg", observers=["ema:decay=0.5"])
      {'model': [3.916, 3.315, 3.169], 'ema': [3.916, 3.576, 3.342]}
    """

    def init(model):
        return Average(tree.at_least_float32(model), jnp.zeros((), jnp.int32))

    def update(round, model, state):
        averaged = tree.lerp(1 - jnp.asarray(decay, float), state.model, model)  # rounded first: weights that sum to 1
        return Average(tree.where(state.count == 0, model, averaged), state.count + 1)

    return Observer(init, update, lambda model, state: {"ema": tree.like(model, state.model)})
