"""What wrappers are made of: a wrapper changes the clients' schedules and the algorithm itself.

Averages that only *read* a trajectory (WIMA, EMA, SWA at a constant rate) are observers, not wrappers.
"""

import dataclasses
from typing import Any, Callable, NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedwin import core, tree
from fedwin.algorithms.adaptive import Moments
from fedwin.core import Algorithm, Phase, Variables
from fedwin.errors import UserError
from fedwin.registry import Registry
from fedwin.schedules import as_schedule

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
      init: (params, inner state, key) -> own state.
      update: (own state, Variables, inner state, round) -> (own state, Variables).
      eval_model: (Variables, Wrapped) -> Variables; default: the wrapped algorithm's.
    """

    def server(params, state, stats, round):
        own, model = update(state.own, Variables(params, stats), state.inner, round)
        return model.params, Wrapped(state.inner, own), model.stats

    def first(params, key):
        inner = algorithm.init(params, key)
        return Wrapped(inner, init(params, inner, key))

    phases = (*map(_lifted, algorithm.phases), Phase(broadcast=lambda params, state: (), client=None, server=server))
    evaluate = eval_model or (lambda model, state: algorithm.eval_model(model, state.inner))
    return algorithm._replace(init=first, phases=phases, eval_model=evaluate)


def only_round_trip(algorithm: Algorithm, name: str) -> Phase:
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
    phase = only_round_trip(algorithm, "placement=pre")

    def server(params, state, total, round):
        if set(total) != {"delta"} or not isinstance(total["delta"], core.Mean):
            raise UserError(
                f"placement=pre needs an algorithm whose message is one mean step, not {sorted(total)}; use placement=post."
            )
        delta = total["delta"].value
        own, delta = update(state.own, params, delta, round)
        inner, now = state.inner, round == start
        if reset != "none":
            inner = with_moments(now, inner, algorithm.init(params, jax.random.key(0)))
        one = jnp.ones((), total["delta"].weight.dtype)
        params, inner = phase.server(params, inner, {"delta": core.Mean(delta, one)}, round)
        if reset == "one_round_only":
            inner = with_moments(now, inner, state.inner)
        return params, Wrapped(inner, own)

    return algorithm._replace(
        init=lambda params, key: Wrapped(algorithm.init(params, key), init(params)),
        phases=tuple(_lifted(p)._replace(server=server) if p.client else _lifted(p) for p in algorithm.phases),
        eval_model=lambda model, state: algorithm.eval_model(model, state.inner),
    )


def initial_stats(setting: core.Setting, key):
    """Returns the model statistics that a run starts from (BatchNorm's; () without)."""
    if setting.model is None:
        return ()
    stats = lambda key: setting.model.init(key).stats
    return jax.jit(stats)(key) if jax.tree.leaves(jax.eval_shape(stats, key)) else ()
