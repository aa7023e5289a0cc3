"""Stochastic weight averaging (SWA) as a read-out, at any client learning rate."""

import jax.numpy as jnp

from fedwin import tree
from fedwin.core import Observer, Setting
from fedwin.errors import UserError
from fedwin.observers.registry import OBSERVERS, Average
from fedwin.registry import checks
from fedwin.schedules import first_round


@OBSERVERS.register("swa", paper=("caldarola2022improving", "izmailov2018averaging"))
def swa(setting: Setting, *, start=0.75, cycle: int = 10, phase: str = "code") -> Observer:
    """SWA: theta_SWA <- (n theta_SWA + theta) / (n + 1) on the server, at any client learning rate.

        theta_SWA <- (n theta_SWA + theta) / (n + 1),   n <- n + 1,   every `cycle` rounds from `start` on

    Between `start` and the first collection it returns the model that round `start` began with.

    Args:
      setting: the run's core.Setting.
      start: fraction of the rounds (0.75) or 0-based round (300).
      cycle: rounds between collections, >= 1.
      phase: 'code' collects after round i > start with (i - start) mod cycle = 0, 'swa' with (i - start + 1) mod cycle
        = 0.

    Returns:
      The core.Observer, with the read-out 'swa'.

    Raises:
      UserError: when a parameter is out of range.

    Source: Caldarola et al., Improving Generalization in Federated Learning by Seeking Flat Minima, 2022,
    https://arxiv.org/abs/2203.11834.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("fedavg", observers=["swa:start=0,cycle=1"])
      {'model': [3.916, 3.315, 3.169], 'swa': [7.0, 3.315, 3.236]}
    """
    first = first_round(start, setting.num_rounds, "swa")
    if not isinstance(cycle, int) or cycle < 1:
        raise UserError(f"swa: cycle={cycle} must be an integer >= 1.")
    checks.one_of("swa", "phase", phase, ("code", "swa"))

    def init(model):
        return Average(model, jnp.zeros((), jnp.int32))

    def update(round, model, state):
        due = (round - first) % cycle == 0 if phase == "code" else (round - first + 1) % cycle == 0
        collect = due & ((round > first) if phase == "code" else (round >= first))
        n = state.count
        mixed = tree.map(lambda a, w: ((n * a + w) / (n + 1)).astype(a.dtype), state.model, model)
        # Before `start` the state follows the model: in round `start` it is the model that the round begins with.
        average = tree.where(round < first, model, tree.where(collect, mixed, state.model))
        return Average(average, n + collect)

    return Observer(init, update, lambda model, state: {"swa": state.model})
