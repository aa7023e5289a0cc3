"""Exponential moving average of the evaluated model."""

import jax.numpy as jnp

from fedwin import tree
from fedwin.core import Observer, Setting
from fedwin.observers.registry import OBSERVERS, Average
from fedwin.registry import checks


@OBSERVERS.register("ema", paper="polyak1992acceleration")
def ema(setting: Setting, *, decay: float = 0.99) -> Observer:
    """EMA: e <- decay e + (1 - decay) w, of the evaluated model; e_0 is the first round's.

    Args:
      setting: of the run.
      decay: memory of the average, in [0, 1).

    Raises:
      UserError: when decay is out of range.

    Polyak and Juditsky, Acceleration of Stochastic Approximation by Averaging, 1992,
    https://doi.org/10.1137/0330046.
    """
    checks.number("ema", 0, 1, open_most=True, decay=decay)

    def init(model):
        return Average(model, jnp.zeros((), jnp.int32))

    def update(round, model, state):
        moved = tree.map(lambda e, w: (decay * e + (1 - decay) * w).astype(e.dtype), state.model, model)
        return Average(tree.where(state.count == 0, model, moved), state.count + 1)

    return Observer(init, update, lambda model, state: {"ema": state.model})
