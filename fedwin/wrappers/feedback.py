"""Averages that are fed back: clients train from a mix of the server's model and its average.

    y_t     = (1 - f) z_t + f x_t              broadcast
    z_{t+1} = server step from z_t, on messages of clients that trained from y_t
    x_{t+1} = average of z_1 .. z_{t+1}        evaluated

With f = 0, x is a read-out of an unchanged run, as an observer computes it; with f = 1, clients train from the average.
IMA with a feedback below 1 (`fedwin.wrappers.ima`) mixes likewise, but its server steps from the broadcast model.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedwin import core, tree
from fedwin.core import Algorithm, Observer, Phase, Setting, Variables
from fedwin.observers.wima import ReadOut, wima
from fedwin.registry.ranges import NonNegative, PositiveInt, Share
from fedwin.schedules import Start, first_round
from fedwin.wrappers.base import WRAPPERS, Wrapper, after, check_no_old_models, initial_stats

_NAME = "average"


class _Weighted(NamedTuple):
    """State of a recursive average: the average, and the sum of the weights in it, float []."""

    model: Variables
    weight: jax.Array


def _fed_back(setting: Setting, algorithm: Algorithm, average: Observer, feedback: float) -> Algorithm:
    """Returns an algorithm whose clients receive (1 - feedback) z + feedback x.

    Args:
      average: an observer of z whose read-out 'average' is x.
    """
    # A broadcast has no statistics, and an average of parameters does not depend on them.
    no_stats = tree.zeros_like(core.stats_shapes(setting))

    def with_feedback(phase: Phase) -> Phase:
        def broadcast(params, state):
            check_no_old_models("feeding back an average", state)
            x = average.read(Variables(params, no_stats), state.own)[_NAME]
            return inner(tree.lerp(feedback, params, x.params), state)

        inner = phase.broadcast
        return phase._replace(broadcast=broadcast)

    wrapped = after(
        algorithm,
        lambda params, inner, key: average.init(Variables(params, initial_stats(setting, key))),
        lambda own, model, inner, round: (average.update(round, model, own), model),
        eval_model=lambda model, state: average.read(model, state.own)[_NAME],
    )
    return core.with_client_phases(with_feedback, wrapped) if feedback else wrapped


def _recursive(share) -> Observer:
    """Returns the average x_0 = z_0, x_{t+1} = (1 - c_t) x_t + c_t z_{t+1}, as an observer.

    Args:
      share: (round, sum of the weights before this one) -> (c_t, the sum with this one), each float [].
    """

    def update(round, model, own):
        c, total = share(round, own.weight)
        # Where the average is one model, it is that model, bitwise, whatever came before.
        return _Weighted(tree.where(c == 1, model, tree.lerp(c, own.model, model)), total)

    init = lambda model: _Weighted(tree.at_least_float32(model), jnp.zeros((), float))
    return Observer(init, update, lambda model, own: {_NAME: tree.like(model, own.model)})


@WRAPPERS.register("feedback", paper=("caldarola2023window", "defazio2025smoothing"))
def feedback(setting: Setting, *, window: PositiveInt = 20, feedback: Share = 0.5) -> Wrapper:
    """Feedback of a window: clients train from (1 - feedback) z + feedback x, x the mean of the last `window` models z.

        y_t = (1 - feedback) z_t + feedback x_t,   z_{t+1} = server step from z_t,   x_t = (1/W) sum_{k<W} z_{t-k}

    x is evaluated; before round W it is the mean of all models. feedback=0 trains like the wrapped algorithm, and x is
    its WIMA read-out, unless it evaluates another model than z (FedExP).

    Args:
      window: W, models in the mean.
      feedback: share of the average in the broadcast model.

    Source: the interpolation is that of `primal`, around the window of `--observe=wima`.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("fedavg", wrappers=["feedback:window=2"])
      {'model': [3.916, 3.576, 3.207]}
    """
    average = wima((ReadOut(_NAME, window),), num_rounds=setting.most_rounds)
    return Wrapper("feedback", lambda algorithm: _fed_back(setting, algorithm, average, feedback))


@WRAPPERS.register("primal", paper="defazio2025smoothing")
def primal(setting: Setting, *, mu_y: Share = 0.7, mu_x: Share = 0.99) -> Wrapper:
    """Generalized primal averaging (GPA) on the server: clients train from (1 - mu_y) z + mu_y x, x an EMA of z.

        y_t = (1 - mu_y) z_t + mu_y x_t,   z_{t+1} = server step from z_t,   x_{t+1} = mu_x x_t + (1 - mu_x) z_{t+1}

    x is evaluated, x_0 = z_0.

    Args:
      mu_y: share of the average in the broadcast model.
      mu_x: memory of the average.

    Source: Defazio et al., Smoothing DiLoCo with Primal Averaging for Faster Training of LLMs, 2025,
    https://arxiv.org/abs/2512.17131.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("fedavg", wrappers=["primal:mu_x=0.5"])
      {'model': [5.186, 3.822, 3.242]}
    """
    average = _recursive(lambda round, total: (1 - jnp.asarray(mu_x, float), total))
    return Wrapper("primal", lambda algorithm: _fed_back(setting, algorithm, average, mu_y))


@WRAPPERS.register("schedule_free", paper="defazio2024road")
def schedule_free(setting: Setting, *, beta: Share = 0.9, power: NonNegative = 0.0, start: Start = 0) -> Wrapper:
    """Schedule-free averaging on the server: clients train from (1 - beta) z + beta x, x a mean of all models z.

        y_t = (1 - beta) z_t + beta x_t,   z_{t+1} = server step from z_t,   x_{t+1} = (1 - c) x_t + c z_{t+1}
        c = k^power / sum_{j=1}^{k} j^power,   k = t + 1 - start;   c = 1 before `start`

    x is evaluated. beta=0 evaluates the uniform mean of an unchanged run.

    Args:
      beta: share of the average in the broadcast model.
      power: 0 weights all models equally; larger values weight later models more.
      start: fraction of the rounds (0.25) or 0-based round (100) of the first model in the mean; a fork made after it
        keeps the models in its parent's mean.

    Source: Defazio et al., The Road Less Scheduled, 2024, https://arxiv.org/abs/2405.15682.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("fedavg", wrappers=["schedule_free:beta=0.5"])
      {'model': [3.916, 3.576, 3.388]}
    """
    first = first_round(start, setting.num_rounds, "schedule_free")

    def share(round, total):
        weight = jnp.asarray(jnp.maximum(round - first, 0) + 1, float) ** power
        total = jnp.where(round <= first, weight, total + weight)
        return weight / total, total

    return Wrapper("schedule_free", lambda algorithm: _fed_back(setting, algorithm, _recursive(share), beta))
