"""Wrappers: what changes training around any algorithm. IMA, SWA with its learning-rate cycle, clipping, local BatchNorm.

A wrapper changes the clients' schedules and the algorithm itself. Averages that only *read* a trajectory (WIMA, EMA,
SWA at a constant rate) are observers, not wrappers.
"""

import dataclasses
from typing import Any, Callable, NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedwin import core, observers, tree, window as windows
from fedwin.algorithms.adaptive import Moments
from fedwin.core import Algorithm, Phase, Variables
from fedwin.errors import UserError
from fedwin.observers import first_round
from fedwin.registry import Registry

WRAPPERS = Registry("wrapper")


def unchanged(x):
    return x


class Wrapper(NamedTuple):
    """name; algorithm: Algorithm -> Algorithm; rate, epochs: schedule -> schedule, what clients use in a round.

    A schedule is a function of the 0-based round (int32 [], traced); `unchanged` leaves a constant a constant.
    """

    name: str
    algorithm: Callable = unchanged
    rate: Callable = unchanged
    epochs: Callable = unchanged

    def solver(self, train):
        """Returns the local solver with this wrapper's learning rate and number of epochs."""
        if self.rate is not unchanged:
            train = dataclasses.replace(train, lr=self.rate(as_schedule(train.lr)))
        if self.epochs is not unchanged:
            most = train.max_epochs or (None if callable(train.epochs) else int(train.epochs))
            train = dataclasses.replace(train, epochs=self.epochs(as_schedule(train.epochs)), max_epochs=most)
        return train


def as_schedule(value) -> Callable:
    """Returns `value` if it is a function of the round, else the function that is always `value`."""
    return value if callable(value) else lambda round: value


# ------------------------------------------------------------------------------------------ around an algorithm


class Wrapped(NamedTuple):
    """inner: the wrapped algorithm's server state; own: the wrapper's."""

    inner: Any
    own: Any


def _lifted(phase: Phase) -> Phase:
    """The phase of an algorithm whose state became Wrapped.inner."""
    if phase.client is None:

        def server(params, state, stats, round):
            params, inner, stats = phase.server(params, state.inner, stats, round)
            return params, state._replace(inner=inner), stats

        return phase._replace(server=server)

    def server(params, state, total, round):
        params, inner = phase.server(params, state.inner, total, round)
        return params, state._replace(inner=inner)

    return phase._replace(broadcast=lambda params, state: phase.broadcast(params, state.inner), server=server)


def after(algorithm: Algorithm, init: Callable, update: Callable, eval_model: Callable | None = None) -> Algorithm:
    """Appends a step of the server alone, with a state of its own, at the end of every round.

    Args:
      algorithm: what is wrapped.
      init: (params, inner state) -> own state.
      update: (own state, Variables, inner state, round) -> (own state, Variables).
      eval_model: (Variables, Wrapped) -> Variables; default: the wrapped algorithm's.
    """

    def server(params, state, stats, round):
        own, model = update(state.own, Variables(params, stats), state.inner, round)
        return model.params, Wrapped(state.inner, own), model.stats

    def first(params):
        inner = algorithm.init(params)
        return Wrapped(inner, init(params, inner))

    phases = (*map(_lifted, algorithm.phases), Phase(broadcast=lambda params, state: (), client=None, server=server))
    evaluate = eval_model or (lambda model, state: algorithm.eval_model(model, state.inner))
    return algorithm._replace(init=first, phases=phases, eval_model=evaluate)


def _only_round_trip(algorithm: Algorithm, name: str) -> Phase:
    """Returns the one phase that clients take part in; raises UserError if there are more (MIME)."""
    phases = [phase for phase in algorithm.phases if phase.client]
    if len(phases) != 1:
        raise UserError(f"{name} needs an algorithm with one round trip per round, not {len(phases)}.")
    return phases[0]


# What fades in the state of an adaptive server: FedAdam's and FedYogi's own moments, and optax's Adam and Yogi.
MOMENTS = (Moments, optax.ScaleByAdamState)


def with_moments(flag, state, source):
    """`state`, but where `flag` holds, with the moments of `source`; nothing else of a state is ever taken over."""
    found = lambda x: isinstance(x, MOMENTS)
    return jax.tree.map(lambda x, y: tree.where(flag, y, x) if found(x) else x, state, source, is_leaf=found)


def before(algorithm: Algorithm, init: Callable, update: Callable, reset="none", start: int = 0) -> Algorithm:
    """Puts a step between the sum over the cohort and the server.

    Legal only where the server receives exactly the clients' mean step y_i - x: UserError otherwise.

    Args:
      algorithm: what is wrapped.
      init: params -> own state.
      update: (own state, params, mean step, round) -> (own state, step that the server gets to see).
      reset: 'none'; 'at_start': the moments of Adam and Yogi are new in round `start`; 'one_round_only': they are new in
        round `start` and what they were before from the next round on.
      start: 0-based round of the reset.
    """
    if reset not in ("none", "at_start", "one_round_only"):
        raise UserError(f"reset={reset} must be one of none, at_start, one_round_only.")
    phase = _only_round_trip(algorithm, "placement=pre")

    def server(params, state, total, round):
        if set(total) != {"delta"} or not isinstance(total["delta"], core.Mean):
            raise UserError(
                f"placement=pre needs an algorithm whose message is one mean step, not {sorted(total)}; use placement=post."
            )
        delta = total["delta"].value
        own, delta = update(state.own, params, delta, round)
        inner, now = state.inner, round == start
        if reset != "none":
            inner = with_moments(now, inner, algorithm.init(params))
        one = jnp.ones((), total["delta"].weight.dtype)
        params, inner = phase.server(params, inner, {"delta": core.Mean(delta, one)}, round)
        if reset == "one_round_only":
            inner = with_moments(now, inner, state.inner)
        return params, Wrapped(inner, own)

    return algorithm._replace(
        init=lambda params: Wrapped(algorithm.init(params), init(params)),
        phases=tuple(_lifted(p)._replace(server=server) if p.client else _lifted(p) for p in algorithm.phases),
        eval_model=lambda model, state: algorithm.eval_model(model, state.inner),
    )


def initial_stats(setting: core.Setting):
    """Returns the model statistics that a run starts from (BatchNorm's; () without)."""
    if setting.model is None:
        return ()
    key = jax.random.key(0) if setting.key is None else setting.key
    stats = lambda key: setting.model.init(key).stats
    return jax.jit(stats)(key) if jax.tree.leaves(jax.eval_shape(stats, key)) else ()


# ---------------------------------------------------------------------------------------------------------- IMA

SCHEDULES = ("exp", "exp_compound", "const", "cyclic", "epoch", "none")


def ima_rate(base, first: int, schedule="exp", decay=0.03, low=5e-5, period=20, lr_restart=False):
    """Returns IMA's learning rate: `base` before round `first`, mild exploration from there on (j = t - first).

    exp: base(first) (1 - decay)^j; exp_compound: base(t) (1 - decay)^j; const: low; cyclic: a sawtooth from
    base(first) to low; epoch, none: base(t), or base(j) with lr_restart.
    """

    def rate(t):
        j = jnp.maximum(t - first, 0)
        fade = jnp.power(1 - decay, jnp.asarray(j, float))
        top = base(jnp.asarray(first, jnp.int32))
        late = {
            "exp": lambda: top * fade,
            "exp_compound": lambda: base(t) * fade,
            "const": lambda: low,
            "cyclic": lambda: top + (low - top) * jnp.asarray(j % period + 1, float) / period,
            "epoch": lambda: base(j) if lr_restart else base(t),
            "none": lambda: base(t),
        }[schedule]()
        return jnp.where(t < first, base(t), jnp.asarray(late, float))

    return rate


class Averaging(NamedTuple):
    """window: of the aggregates; on: bool [], whether the model is their average by now."""

    window: windows.Window
    on: jax.Array


@WRAPPERS.register("ima")
def ima(
    setting,
    *,
    window=5,
    start=0.75,
    placement="post",
    reset="at_start",
    schedule="exp",
    decay=0.03,
    low=5e-5,
    period=20,
    lr_restart=False,
) -> Wrapper:
    """Iterative moving averaging: x_{t+1} = (1/P) sum_{tau = t-P+1 .. t} a_tau from round `start` on, a_t before.

    The window holds the aggregates a_t of the base method, never IMA models, and is filled before `start`; the average
    is broadcast and evaluated, whatever the base method evaluates by itself. Model statistics are averaged likewise.

    Args:
      window: P, models in the average.
      start: fraction of the rounds (0.75) or 0-based round (300).
      placement: 'post' averages the new server models; 'pre' averages the clients' means before the server optimiser.
      reset: of Adam's and Yogi's moments on the server in round `start`, for 'pre': 'none', 'at_start', 'one_round_only'.
      schedule: clients' learning rate from `start` on: exp, exp_compound, const, cyclic, epoch, none.
      decay: of exp and exp_compound, per round.
      low: rate of const, lowest rate of cyclic.
      period: rounds of a cycle (cyclic), or per epoch dropped (epoch).
      lr_restart: 'epoch' restarts the base schedule at `start`, as the released code does.

    Raises UserError for a hyper-parameter out of range. Zhou et al., Understanding and Improving Model Averaging in
    Federated Learning on Heterogeneous Data, 2023, https://arxiv.org/abs/2305.07845.
    """
    # On the command line, none reads as None.
    schedule, reset = schedule or "none", reset or "none"
    first = first_round(start, setting.num_rounds, "ima")
    windows.check_size("ima: window", window)
    windows.check_size("ima: period", period)
    for name, value, known in (("placement", placement, ("post", "pre")), ("schedule", schedule, SCHEDULES)):
        if value not in known:
            raise UserError(f"ima: {name}={value} must be one of {', '.join(known)}.")
    if not 0 <= decay < 1 or low <= 0:
        raise UserError(f"ima: decay={decay} must lie in [0, 1) and low={low} above 0.")
    if reset not in ("none", "at_start", "one_round_only"):
        raise UserError(f"ima: reset={reset} must be one of none, at_start, one_round_only.")
    # Averaging starts at full strength: not before the window is full.
    begin = max(first, window - 1)
    sizes = (window,)

    def empty(values):
        packing = windows.flat(values)
        return windows.init(packing.size, sizes, packing.dtype)

    def averaged(own, values, round):
        """Pushes a_t; returns the window and what replaces a_t."""
        packing = windows.flat(values)
        own = windows.push(own, packing.pack(values), sizes)
        # A window of one model is that model, to the bit.
        mean = values if window == 1 else packing.unpack(windows.mean(own, 0, window))
        return own, tree.where(round >= begin, mean, values)

    def wrap(algorithm):
        stats = initial_stats(setting)
        if placement == "post":
            init = lambda params, inner: Averaging(empty(Variables(params, stats)), jnp.zeros((), bool))

            def smooth(own, model, inner, round):
                window, model = averaged(own.window, model, round)
                return Averaging(window, jnp.asarray(round >= begin)), model

            def evaluated(model, state):
                return tree.where(state.own.on, model, algorithm.eval_model(model, state.inner))

            # A window of one model is the base method, in what it evaluates too.
            return after(algorithm, init, smooth, None if window == 1 else evaluated)

        def update(own, params, delta, round):
            own, target = averaged(own, tree.add(params, delta), round)
            if window == 1:
                return own, delta
            return own, tree.where(round >= begin, tree.sub(target, params), delta)

        algorithm = before(algorithm, empty, update, reset, begin)
        if not jax.tree.leaves(stats):
            return algorithm

        def smooth(own, model, inner, round):
            own, mean = averaged(own, model.stats, round)
            return own, model._replace(stats=mean)

        return after(algorithm, lambda params, inner: empty(stats), smooth)

    def rate(base):
        return ima_rate(as_schedule(base), first, schedule, decay, low, period, lr_restart)

    def epochs(base):
        base = as_schedule(base)
        return lambda t: jnp.where(t < first, base(t), jnp.maximum(1, base(t) - jnp.maximum(t - first, 0) // period))

    return Wrapper(
        "ima",
        wrap,
        rate=unchanged if schedule == "none" else rate,
        epochs=epochs if schedule == "epoch" else unchanged,
    )


# ---------------------------------------------------------------------------------------------------------- SWA


@WRAPPERS.register("swa")
def swa(setting, *, start=0.75, cycle=10, phase="code", second_lr=None, evaluate="average") -> Wrapper:
    """SWA on the server with its learning-rate cycle: theta_SWA <- (n theta_SWA + theta) / (n + 1).

    From round i = start on, clients use (1 - u) eta_1 + u eta_2 with u = ((i mod c) + 1) / c, and theta_SWA is what is
    evaluated; it is never broadcast. The model that is trained is then in the checkpoints alone; to read both in one run,
    evaluate the model and observe the average: --wrap=swa:evaluate=model --observe=swa, with equal start, cycle, phase.

    Args:
      start: fraction of the rounds (0.75) or 0-based round (300).
      cycle: c, rounds of a learning-rate cycle; 1 keeps eta_1.
      phase: 'code' counts cycles from round 0 and collects where (i - start) mod c = 0, i > start; 'swa' counts them
        from `start` and collects at the lowest rate of each.
      second_lr: eta_2; none = eta_1 / 100.
      evaluate: 'average' shows theta_SWA; 'model' shows the trained model, the wrapper is then the rate alone.

    Raises UserError for a hyper-parameter out of range. Caldarola et al., Improving Generalization in Federated
    Learning by Seeking Flat Minima, 2022, https://arxiv.org/abs/2203.11834.
    """
    first = first_round(start, setting.num_rounds, "swa")
    average = observers.swa(setting.num_rounds, start=start, cycle=cycle, phase=phase)
    if second_lr is not None and not second_lr >= 0:
        raise UserError(f"swa: second_lr={second_lr} must be >= 0.")
    if evaluate not in ("average", "model"):
        raise UserError(f"swa: evaluate={evaluate} must be one of average, model.")

    def rate(base):
        def cycled(i):
            high = jnp.asarray(as_schedule(base)(i), float)
            low = high / 100 if second_lr is None else second_lr
            u = jnp.asarray((i if phase == "code" else i - first) % cycle + 1, float) / cycle
            return jnp.where(i < first, high, (1 - u) * high + u * low)

        return cycled

    def wrap(algorithm):
        stats = initial_stats(setting)
        init = lambda params, inner: average.init(algorithm.eval_model(Variables(params, stats), inner))

        def update(own, model, inner, round):
            return average.update(round, algorithm.eval_model(model, inner), own), model

        return after(algorithm, init, update, eval_model=lambda model, state: state.own.model)

    return Wrapper("swa", wrap if evaluate == "average" else unchanged, rate=unchanged if cycle == 1 else rate)


# ------------------------------------------------------------------------------------------------------ clipping


@WRAPPERS.register("clip")
def clip(setting, *, norm) -> Wrapper:
    """Bounds every client's step: delta_i <- delta_i min(1, norm / ||delta_i||), one norm over all parameters.

    Args:
      norm: the bound, > 0.

    Raises UserError for norm <= 0, or where clients send no mean step.
    """
    if isinstance(norm, bool) or not isinstance(norm, (int, float)) or not norm > 0:
        raise UserError(f"clip: norm={norm} must be a number > 0.")

    def clipped(phase):
        def client(down, c):
            update = phase.client(down, c)
            mean = update.message.get("delta") if isinstance(update.message, dict) else None
            if not isinstance(mean, core.Mean):
                raise UserError("clip: clients of this algorithm send no mean step.")
            # The message is delta times its weight, hence the bound times the weight.
            factor = jnp.minimum(1.0, norm * mean.weight / jnp.maximum(tree.norm(mean.total), 1e-12))
            bounded = mean._replace(total=tree.scale(factor, mean.total))
            return update._replace(message=update.message | {"delta": bounded})

        return phase._replace(client=client)

    def wrap(algorithm):
        _only_round_trip(algorithm, "clip")
        return algorithm._replace(phases=tuple(clipped(phase) if phase.client else phase for phase in algorithm.phases))

    return Wrapper("clip", wrap)


# --------------------------------------------------------------------------------------------------- local BatchNorm


class Kept(NamedTuple):
    """inner: the client's row of the wrapped algorithm; seen: bool [], whether it has taken part; stats: its own."""

    inner: Any
    seen: jax.Array
    stats: Any


@WRAPPERS.register("local_bn")
def local_bn(setting) -> Wrapper:
    """Every client goes on from its own BatchNorm statistics, not from the server's (bn_aggregation=local).

    A client that joins starts from the server's. The mean of what the round's clients hold is evaluated, each client's
    own is in its row. Only statistics stay local, as in SiloBN: scales and offsets, which FedBN keeps as well, are
    parameters here, and parameters belong to the algorithm; they are trained as without the wrapper.

    Raises UserError for a model without statistics. Andreux et al., Siloed Federated Learning for Multi-Centric
    Histopathology Datasets, 2020, https://arxiv.org/abs/2008.07424. Li et al., FedBN: Federated Learning on Non-IID
    Features via Local Batch Normalization, 2021, https://arxiv.org/abs/2102.07623.
    """

    def kept(phase):
        def client(down, c):
            row = c.state
            own = tree.where(row.seen, row.stats, c.stats)
            update = phase.client(down, c._replace(state=row.inner, stats=own))
            # MIME's first round trip returns neither row nor statistics.
            inner = update.state if jax.tree.leaves(update.state) else row.inner
            stats = update.stats if jax.tree.leaves(update.stats) else own
            return update._replace(state=Kept(inner, jnp.ones((), bool), stats))

        return phase._replace(client=client)

    def wrap(algorithm):
        stats = initial_stats(setting)
        if not jax.tree.leaves(stats):
            raise UserError("local_bn: the model has no BatchNorm statistics to keep; leave --wrap=local_bn away.")
        return algorithm._replace(
            phases=tuple(kept(phase) if phase.client else phase for phase in algorithm.phases),
            client_init=lambda params, id: Kept(algorithm.client_init(params, id), jnp.zeros((), bool), stats),
        )

    return Wrapper("local_bn", wrap)
