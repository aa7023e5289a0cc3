"""Stochastic weight averaging (SWA) on the server, with its cyclic learning rate."""

from typing import Literal

import jax.numpy as jnp

from fedwin.core import Setting, Variables
from fedwin.observers.swa import swa as swa_observer
from fedwin.registry.ranges import NonNegative, PositiveInt
from fedwin.schedules import Start, as_schedule, first_round
from fedwin.wrappers.base import WRAPPERS, Wrapper, after, initial_stats, unchanged


@WRAPPERS.register("swa", paper=("caldarola2022improving", "izmailov2018averaging"))
def swa(
    setting: Setting,
    *,
    start: Start = 0.75,
    cycle: PositiveInt = 10,
    phase: Literal["code", "swa"] = "code",
    second_lr: NonNegative | None = None,
    evaluate: Literal["average", "model"] = "average",
) -> Wrapper:
    """SWA on the server with its learning-rate cycle: theta_SWA <- (n theta_SWA + theta) / (n + 1).

        lr_i = (1 - u) eta_1 + u eta_2,   u = ((i mod c) + 1) / c,   in rounds i >= start

    theta_SWA is evaluated but never broadcast, so the trained model is in the checkpoints only. To evaluate both in one
    run, evaluate the model and observe the average: --wrap=swa:evaluate=model --observe=swa, with equal start, cycle
    and phase.

    Args:
      start: fraction of the rounds (0.75) or 0-based round (300).
      cycle: c, rounds of a learning-rate cycle; 1 keeps eta_1.
      phase: 'code' counts cycles from round 0 and collects where (i - start) mod c = 0, i > start; 'swa' counts them
        from `start` and collects at the lowest rate of each.
      second_lr: eta_2; none = eta_1 / 100.
      evaluate: 'average' evaluates theta_SWA; 'model' evaluates the trained model: only the rate changes.

    Source: Caldarola et al., Improving Generalization in Federated Learning by Seeking Flat Minima, 2022,
    https://arxiv.org/abs/2203.11834.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("fedavg", rounds=4, wrappers=["swa:start=1,cycle=2"])
      {'model': [3.916, 3.916, 3.916, 3.397]}
    """
    first = first_round(start, setting.num_rounds, "swa")
    average = swa_observer(setting, start=start, cycle=cycle, phase=phase)

    def rate(base):
        def cycled(i):
            high = jnp.asarray(as_schedule(base)(i), float)
            low = high / 100 if second_lr is None else second_lr
            u = jnp.asarray((i if phase == "code" else i - first) % cycle + 1, float) / cycle
            return jnp.where(i < first, high, (1 - u) * high + u * low)

        return cycled

    def wrap(algorithm):

        def init(params, inner, key):
            return average.init(algorithm.eval_model(Variables(params, initial_stats(setting, key)), inner))

        def update(own, model, inner, round):
            return average.update(round, algorithm.eval_model(model, inner), own), model

        return after(algorithm, init, update, eval_model=lambda model, state: state.own.model)

    return Wrapper("swa", wrap if evaluate == "average" else unchanged, rate=unchanged if cycle == 1 else rate)
