"""Stochastic weight averaging (SWA) as a read-out, at any client learning rate."""

from typing import Literal

import jax.numpy as jnp

from fedwin import tree
from fedwin.core import Observer, Setting
from fedwin.observers.registry import OBSERVERS, Average
from fedwin.registry.ranges import PositiveInt
from fedwin.schedules import Start, first_round


@OBSERVERS.register("swa", paper=("caldarola2022improving", "izmailov2018averaging"))
def swa(
    setting: Setting, *, start: Start = 0.75, cycle: PositiveInt = 10, phase: Literal["code", "swa"] = "code"
) -> Observer:
    """SWA: theta_SWA <- (n theta_SWA + theta) / (n + 1) on the server, at any client learning rate.

        theta_SWA <- (n theta_SWA + theta) / (n + 1),   n <- n + 1,   every `cycle` rounds from `start` on

    Between `start` and the first collection it returns the model that round `start` began with.

    Args:
      start: fraction of the rounds (0.75) or 0-based round (300).
      cycle: rounds between collections.
      phase: 'code' collects after round i > start with (i - start) mod cycle = 0, 'swa' with (i - start + 1) mod cycle
        = 0.

    Source: Caldarola et al., Improving Generalization in Federated Learning by Seeking Flat Minima, 2022,
    https://arxiv.org/abs/2203.11834.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("fedavg", observers=["swa:start=0,cycle=1"])
      {'model': [3.916, 3.315, 3.169], 'swa': [7.0, 3.315, 3.236]}
    """
    first = first_round(start, setting.num_rounds, "swa")

    def init(model):
        return Average(tree.at_least_float32(model), jnp.zeros((), jnp.int32))

    def update(round, model, state):
        due = (round - first) % cycle == 0 if phase == "code" else (round - first + 1) % cycle == 0
        collect = due & ((round > first) if phase == "code" else (round >= first))
        # A fork whose parent began earlier has more models than this one collects; the average then begins anew.
        anew = state.count > jnp.maximum(round - first - (phase == "code"), 0) // cycle
        n, so_far = jnp.where(anew, 0, state.count), tree.where(anew, model, state.model)
        mixed = tree.axpy(1 / (n + 1), tree.sub(model, so_far), so_far)
        # Before `start` the state follows the model: in round `start` it is the model that the round begins with.
        average = tree.where(round < first, model, tree.where(collect, mixed, so_far))
        return Average(average, jnp.where(round < first, 0, n + collect))

    return Observer(init, update, lambda model, state: {"swa": tree.like(model, state.model)})
