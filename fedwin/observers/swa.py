"""SWA as a read-out, at whatever rate the clients use."""

import jax.numpy as jnp

from fedwin import tree
from fedwin.core import Observer, Setting
from fedwin.errors import UserError
from fedwin.observers.registry import OBSERVERS, Average
from fedwin.registry import checks
from fedwin.schedules import first_round


@OBSERVERS.register("swa", paper=("caldarola2022improving", "izmailov2018averaging"))
def swa(setting: Setting, *, start=0.75, cycle: int = 10, phase: str = "code") -> Observer:
    """SWA: theta_SWA <- (n theta_SWA + theta) / (n + 1) on the server, at whatever rate the clients use.

    From `start` until the first collection it shows the model that round `start` began from.

    Args:
      setting: of the run.
      start: fraction of the rounds (0.75) or 0-based round (300).
      cycle: rounds between collections.
      phase: 'code' collects after round i > start with (i - start) mod cycle = 0, 'swa' with (i - start + 1) mod cycle
        = 0.

    Raises:
      UserError: when a parameter is out of range.

    Caldarola et al., Improving Generalization in Federated Learning by Seeking Flat Minima, 2022,
    https://arxiv.org/abs/2203.11834.
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
        # Before `start` the state follows the model: at round `start` it is the snapshot that round begins from.
        kept = tree.where(round < first, model, tree.where(collect, mixed, state.model))
        return Average(kept, n + collect)

    return Observer(init, update, lambda model, state: {"swa": state.model})
