"""Exponential moving average of the evaluated model."""

import jax.numpy as jnp

from fedwin import tree
from fedwin.core import Observer
from fedwin.errors import UserError
from fedwin.observers.registry import OBSERVERS, Average


@OBSERVERS.register("ema", paper="polyak1992acceleration")
def ema(num_rounds: int, *, decay: float = 0.99) -> Observer:
    """Exponential moving average of the evaluated model: e <- decay e + (1 - decay) w, e_0 = the first round's model."""
    if not 0 <= decay < 1:
        raise UserError(f"ema: decay={decay} must lie in [0, 1).")

    def init(model):
        return Average(model, jnp.zeros((), jnp.int32))

    def update(round, model, state):
        moved = tree.map(lambda e, w: (decay * e + (1 - decay) * w).astype(e.dtype), state.model, model)
        return Average(tree.where(state.count == 0, model, moved), state.count + 1)

    return Observer(init, update, lambda model, state: {"ema": state.model})
