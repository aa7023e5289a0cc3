"""Averages of server models, and their learning rates: iterative moving averaging (IMA), stochastic weight averaging.

IMA's window holds aggregates a_t. In the paper's code, a_t is the new server model (placement='post'), but around an
adaptive server (FedAdam, FedYogi, FedAdagrad) it is the clients' mean sum_i p_i y_i (placement='pre'): the server
optimizer steps toward the window's average, and its output is broadcast. 'post' around an adaptive server is a
different method.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from fedwin import core, tree
from fedwin import window as windows
from fedwin.core import Setting, Variables
from fedwin.errors import UserError
from fedwin.observers.swa import swa as swa_observer
from fedwin.registry.ranges import Decay, NonNegative, Positive, PositiveInt, Share
from fedwin.schedules import Start, first_round
from fedwin.wrappers.base import (
    WRAPPERS,
    Wrapped,
    Wrapper,
    after,
    initial_stats,
    single_round_trip,
    unchanged,
    with_own_state,
)
from fedwin.wrappers.messages import check_not_private

# What happens to the server's resettable moments when averaging before the server starts.
Reset = Literal["none", "at_start", "one_round_only"]
Schedule = Literal["exp", "exp_compound", "const", "cyclic", "epoch", "none"]


class Averaging(NamedTuple):
    """State of IMA.

    Attributes:
      window: window of the aggregates.
      on: whether the model is already their average, bool [].
    """

    window: windows.Window
    on: jax.Array


class _WindowMean(NamedTuple):
    """Mean of the last `size` aggregates, in effect from round `start` on, once the window is full."""

    size: int
    start: int
    feedback: float = 1.0

    def empty(self, values):
        """Returns the window before the first aggregate."""
        packing = windows.flat(values)
        return windows.init(packing.size, (self.size,), packing.dtype)

    def on(self, own, round):
        """Whether the mean is in effect in a round, given the window after it, bool []."""
        return (round >= self.start) & (own.count >= self.size)

    def push(self, own, values, round):
        """Pushes a_t; returns the window and the model that replaces a_t."""
        packing = windows.flat(values)
        own = windows.push(own, packing.pack(values), (self.size,))
        # The mean of one model is that model, bitwise.
        if self.size == 1 or not self.feedback:
            return own, values
        mean = lambda: packing.unpack(windows.mean(own, 0, self.size))
        if self.feedback == 1:
            return own, tree.where(self.on(own, round), mean(), values)
        # In a branch of its own, the mix is rounded in the same way wherever the window is.
        mixed = lambda: tree.lerp(self.feedback, values, mean())
        return own, lax.cond(self.on(own, round), mixed, lambda: values)


def _after_the_server(algorithm, mean: _WindowMean, stats):
    """Averages the new server models."""

    def smooth(own, model, inner, round):
        window, model = mean.push(own.window, model, round)
        return Averaging(window, mean.on(window, round)), model

    def evaluated(model, state):
        average = model  # with all of the feedback, it is what is broadcast
        if mean.feedback < 1:
            average = windows.flat(model).unpack(windows.mean(state.own.window, 0, mean.size))
        return tree.where(state.own.on, average, algorithm.eval_model(model, state.inner))

    def init(params, inner, key):
        return Averaging(mean.empty(Variables(params, stats)), jnp.zeros((), bool))

    # With a window of one model this is the base method, including the model that it evaluates.
    return after(algorithm, init, smooth, None if mean.size == 1 else evaluated)


def _before_the_server(algorithm, mean: _WindowMean, stats, reset: Reset):
    """Averages the clients' means before the server optimizer, and the statistics after it.

    In the first round of the average, the server's resettable moments are reset, unless `reset` is 'none'; with
    'one_round_only' they regain their earlier values in the next round.

    Raises:
      UserError: when clients send anything but their mean step y_i - x, or take part more than once per round.
    """
    phase, resettable = single_round_trip(algorithm, "placement=pre"), algorithm.resettable
    taken = lambda flag, state, source: jax.tree.map(
        lambda x, y: tree.where(flag, y, x) if resettable(x) else x, state, source, is_leaf=resettable
    )

    def server(params, state, total, round):
        check_not_private("ima:placement=pre", total)
        step = core.mean_step_of(total)
        if step is None or len(jax.tree.leaves(total)) > len(jax.tree.leaves(step)):
            raise UserError("placement=pre needs an algorithm whose message is one mean step; use placement=post.")
        delta = step.value
        own, target = mean.push(state.own, tree.add(params, delta), round)
        if mean.size > 1:
            delta = tree.where(mean.on(own, round), tree.sub(target, params), delta)
        inner, resetting = state.inner, mean.on(own, round) & ~mean.on(state.own, round - 1)
        if reset != "none":
            inner = taken(resetting, inner, algorithm.init(params, jax.random.key(0)))
        replaced = core.with_mean_step(total, core.Mean(delta, jnp.ones((), step.weight.dtype)))
        params, inner = phase.server(params, inner, replaced, round)
        if reset == "one_round_only":
            inner = taken(resetting, inner, state.inner)
        return params, Wrapped(inner, own)

    on_inner = with_own_state(algorithm, lambda params, inner, key: mean.empty(params))
    averaged = core.with_client_phases(lambda phase: phase._replace(server=server), on_inner)
    if tree.is_empty(stats):
        return averaged

    def smooth(own, model, inner, round):
        own, stats = mean.push(own, model.stats, round)
        return own, model._replace(stats=stats)

    return after(averaged, lambda params, inner, key: mean.empty(stats), smooth)


def ima_rate(base, first: int, schedule: Schedule, decay, low, period, lr_restart):
    """Returns IMA's learning rate, round -> float []: `base` before round `first`, mild exploration from there on.

    Arguments as for `ima`.

    With j = t - first, in round t >= first:

        exp             base(first) (1 - decay)^j
        exp_compound    base(t) (1 - decay)^j
        const           low
        cyclic          a sawtooth from base(first) to low
        epoch           base(t), or base(j) with lr_restart

    Example:
      >>> rate = ima_rate(lambda t: 0.1, 2, "exp", decay=0.5, low=5e-5, period=20, lr_restart=False)
      >>> [round(float(rate(jnp.int32(t))), 4) for t in range(5)]
      [0.1, 0.1, 0.1, 0.05, 0.025]
    """

    def rate(t):
        j = jnp.maximum(t - first, 0)
        decayed = jnp.power(1 - decay, jnp.asarray(j, float))
        top = base(jnp.asarray(first, jnp.int32))
        explored = {
            "exp": lambda: top * decayed,
            "exp_compound": lambda: base(t) * decayed,
            "const": lambda: low,
            "cyclic": lambda: top + (low - top) * jnp.asarray(j % period + 1, float) / period,
            "epoch": lambda: base(j) if lr_restart else base(t),
        }[schedule]()
        return jnp.where(t < first, base(t), jnp.asarray(explored, float))

    return rate


def dropped_epochs(base, first: int, period: int):
    """Returns IMA's local epochs: `base` before round `first`, then one less per `period` rounds, but at least 1.

    Example:
      >>> epochs = dropped_epochs(lambda t: 3, first=1, period=2)
      >>> [int(epochs(jnp.int32(t))) for t in range(6)]
      [3, 3, 3, 2, 2, 1]
    """
    return lambda t: jnp.where(t < first, base(t), jnp.maximum(1, base(t) - jnp.maximum(t - first, 0) // period))


@WRAPPERS.register("ima", paper="zhou2023understanding", warmup_horizon="window")
def ima(
    setting: Setting,
    *,
    window: PositiveInt = 5,
    start: Start = 0.75,
    placement: Literal["post", "pre"] = "post",
    reset: Reset = "at_start",
    schedule: Schedule = "exp",
    decay: Decay = 0.03,
    low: Positive = 5e-5,
    period: PositiveInt = 20,
    lr_restart: bool = False,
    feedback: Share = 1.0,
) -> Wrapper:
    """Iterative moving averaging: x_{t+1} = (1/P) sum_{tau = t-P+1 .. t} a_tau from round `start` on, a_t before.

    The window holds the aggregates a_t of the base method, never IMA models. If it is not full at `start`, the average
    waits until it is. The average is broadcast and evaluated in place of the base method's model. Model statistics are
    averaged likewise.

    Args:
      window: P, models in the average.
      start: fraction of the rounds (0.75) or 0-based round (300).
      placement: 'post' averages the new server models; 'pre' averages the clients' means before the server optimizer,
        whose output is broadcast, as the paper's code does around FedAdam, FedYogi and FedAdagrad.
      reset: reset of Adam's and Yogi's moments on the server in round `start`, for 'pre': 'none', 'at_start',
        'one_round_only' (the released code).
      schedule: clients' learning rate from `start` on: exp, exp_compound, const, cyclic, epoch, none.
      decay: decay of exp and exp_compound, per round.
      low: rate of const, lowest rate of cyclic.
      period: rounds of a cycle (cyclic), or per epoch dropped (epoch).
      lr_restart: 'epoch' restarts the base schedule at `start`, as the released code does.
      feedback: share of the average in the broadcast model, (1 - feedback) a_t + feedback x, for 'post'; 1 is IMA, 0
        with schedule=none trains like the base method. The average is evaluated in any case.

    Source: Zhou et al., Understanding and Improving Model Averaging in Federated Learning on Heterogeneous Data, 2023,
    https://arxiv.org/abs/2305.07845.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("fedavg", wrappers=["ima:window=2,start=1,schedule=none"])
      {'model': [3.916, 3.576, 3.274]}
    """
    first = first_round(start, setting.num_rounds, "ima")
    windows.check_size("ima: window", window)
    mean = _WindowMean(window, first, feedback)
    if feedback < 1 and placement == "pre":
        raise UserError(f"ima: feedback={feedback:g} mixes server models; with placement=pre, leave it out.")

    def wrap(algorithm):
        stats = core.stats_shapes(setting)
        if placement == "post":
            return _after_the_server(algorithm, mean, stats)
        return _before_the_server(algorithm, mean, stats, reset)

    rate = lambda base: ima_rate(base, first, schedule, decay, low, period, lr_restart)
    epochs = lambda base: dropped_epochs(base, first, period)
    return Wrapper(
        "ima", wrap, rate=unchanged if schedule == "none" else rate, epochs=epochs if schedule == "epoch" else unchanged
    )


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
    run, evaluate the model and observe the average: --wrap=swa:evaluate=model --observe=swa, with the same start, cycle
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
    if cycle == 1 and second_lr is not None:
        raise UserError(f"swa: second_lr={second_lr:g} is that of a cycle, and cycle=1 has none; leave it out.")
    average = swa_observer(setting, start=start, cycle=cycle, phase=phase)

    def rate(base):
        def cycled(i):
            high = jnp.asarray(base(i), float)
            low = high / 100 if second_lr is None else second_lr
            u = jnp.asarray((i if phase == "code" else i - first) % cycle + 1, float) / cycle
            return jnp.where(i < first, high, (1 - u) * high + u * low)

        return cycled

    def wrap(algorithm):
        def init(params, inner, key):
            return average.init(algorithm.eval_model(Variables(params, initial_stats(setting, key)), inner))

        def update(own, model, inner, round):
            return average.update(round, algorithm.eval_model(model, inner), own), model

        return after(algorithm, init, update, eval_model=lambda model, state: average.read(model, state.own)["swa"])

    return Wrapper("swa", wrap if evaluate == "average" else unchanged, rate=unchanged if cycle == 1 else rate)
