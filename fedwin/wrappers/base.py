"""What wrappers are made of: a wrapper changes the clients' schedules and the algorithm itself.

Averages that only *read* a trajectory (WIMA, EMA, SWA at a constant rate) are observers, not wrappers.
"""

import dataclasses
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedwin import core, tree
from fedwin.core import Algorithm, Phase, Variables
from fedwin.errors import UserError
from fedwin.registry import Registry, checks
from fedwin.schedules import as_schedule

# builder(setting, *, option=...) -> Wrapper
# spans: the parameter that says how many rounds a wrapper needs before it begins.
WRAPPERS = Registry("wrapper", rule="rule", warmup_horizon="")

# What becomes of fading moments when averaging before the server starts.
RESETS = ("none", "at_start", "one_round_only")


def unchanged(x):
    return x


class Wrapper(NamedTuple):
    """What a wrapper changes; `unchanged` leaves a constant schedule a constant.

    A schedule is a function of the 0-based round (int32 [], traced).

    Attributes:
      name: of the wrapper.
      algorithm: Algorithm -> Algorithm.
      rate: schedule -> schedule, the clients' learning rate.
      epochs: schedule -> schedule, the clients' local epochs.
      bound: (start, y) -> y, what becomes of a client's model after its last local step; None leaves it alone.
    """

    name: str
    algorithm: Callable = unchanged
    rate: Callable = unchanged
    epochs: Callable = unchanged
    bound: Callable | None = None

    def solver(self, solve):
        """Returns the local solver with this wrapper's learning rate, number of epochs and bound."""
        if self.rate is not unchanged:
            solve = dataclasses.replace(solve, lr=self.rate(as_schedule(solve.lr)))
        if self.epochs is not unchanged:
            most = solve.max_epochs or (None if callable(solve.epochs) else int(solve.epochs))
            solve = dataclasses.replace(solve, epochs=self.epochs(as_schedule(solve.epochs)), max_epochs=most)
        if self.bound is not None:
            outer, inner = self.bound, solve.bound
            solve = dataclasses.replace(solve, bound=lambda start, y: outer(start, inner(start, y)))
        return solve


# A leaf of a run's state: its field, as many `.inner` as there are wrappers around it, and the rest.
_LEAF = re.compile(r"(\w+)((?:\.inner(?!\w))*)(.*)", re.DOTALL)


class Wrapped(NamedTuple):
    """A wrapper's server state.

    Attributes:
      inner: the wrapped algorithm's.
      own: the wrapper's.
    """

    inner: Any
    own: Any


def unwrapped_names(name: str) -> list[str]:
    """Returns the names that a leaf of a run's state had with fewer wrappers around it, the nearest first.

    >>> unwrapped_names("state.inner.inner.m")
    ['state.inner.m', 'state.m']
    """
    match = _LEAF.fullmatch(name)
    if match is None:
        return []
    field, inner, rest = match.groups()
    depth = inner.count(".inner")
    return [field + k * ".inner" + rest for k in reversed(range(depth))]


def _on_inner_state(phase: Phase) -> Phase:
    """The phase of an algorithm whose state became Wrapped.inner."""

    def alone(params, state, stats, round):
        params, inner, stats = phase.server(params, state.inner, stats, round)
        return params, state._replace(inner=inner), stats

    def server(params, state, total, round):
        params, inner = phase.server(params, state.inner, total, round)
        return params, state._replace(inner=inner)

    if phase.client is None:
        return phase._replace(server=alone)
    return phase._replace(broadcast=lambda params, state: phase.broadcast(params, state.inner), server=server)


def after(algorithm: Algorithm, init: Callable, update: Callable, eval_model: Callable | None = None) -> Algorithm:
    """Appends a step of the server alone, with a state of its own, at the end of every round.

    Args:
      algorithm: what is wrapped.
      init: (params, inner state, key) -> own state.
      update: (own state, Variables, inner state, round) -> (own state, Variables).
      eval_model: (Variables, Wrapped) -> Variables; by default the wrapped algorithm's.
    """

    def server(params, state, stats, round):
        own, model = update(state.own, Variables(params, stats), state.inner, round)
        return model.params, Wrapped(state.inner, own), model.stats

    def first(params, key):
        inner = algorithm.init(params, key)
        return Wrapped(inner, init(params, inner, key))

    phases = (
        *map(_on_inner_state, algorithm.phases),
        Phase(broadcast=lambda params, state: (), client=None, server=server),
    )
    evaluate = eval_model or (lambda model, state: algorithm.eval_model(model, state.inner))
    return algorithm._replace(init=first, phases=phases, eval_model=evaluate)


def single_round_trip(algorithm: Algorithm, name: str) -> Phase:
    """Returns the one phase that clients take part in; raises UserError if there are more (MIME)."""
    phases = [phase for phase in algorithm.phases if phase.client]
    if len(phases) != 1:
        raise UserError(f"{name} needs an algorithm with one round trip per round, not {len(phases)}.")
    return phases[0]


def with_moments_of(flag, state, source, fades: Callable[[Any], bool]):
    """Returns a state whose fading nodes are those of another one, if a flag holds.

    Args:
      flag: bool [].
      state: the state.
      source: the other one, of the same structure.
      fades: node -> whether it fades (Algorithm.fades).
    """
    return jax.tree.map(lambda x, y: tree.where(flag, y, x) if fades(x) else x, state, source, is_leaf=fades)


def before(algorithm: Algorithm, init: Callable, update: Callable, reset="none", start: int = 0) -> Algorithm:
    """Puts a step between the sum over the cohort and the server.

    Legal only where the server receives exactly the clients' mean step y_i - x.

    Args:
      algorithm: what is wrapped.
      init: params -> own state.
      update: (own state, params, mean step, round) -> (own state, step that the server gets to see).
      reset: 'none'; 'at_start': moments that fade are new in round `start`; 'one_round_only': they are new in round
        `start` and what they were before from the next round on.
      start: 0-based round of the reset.

    Raises:
      UserError: when clients send anything else, or take part more than once in a round.
    """
    checks.one_of("", "reset", reset, RESETS)
    phase = single_round_trip(algorithm, "placement=pre")

    def server(params, state, total, round):
        mean = core.mean_step_of(total)
        if mean is None or len(jax.tree.leaves(total)) > len(jax.tree.leaves(mean)):
            raise UserError("placement=pre needs an algorithm whose message is one mean step; use placement=post.")
        own, delta = update(state.own, params, mean.value, round)
        inner, now = state.inner, round == start
        if reset != "none":
            inner = with_moments_of(now, inner, algorithm.init(params, jax.random.key(0)), algorithm.fades)
        seen = core.with_mean_step(total, core.Mean(delta, jnp.ones((), mean.weight.dtype)))
        params, inner = phase.server(params, inner, seen, round)
        if reset == "one_round_only":
            inner = with_moments_of(now, inner, state.inner, algorithm.fades)
        return params, Wrapped(inner, own)

    return algorithm._replace(
        init=lambda params, key: Wrapped(algorithm.init(params, key), init(params)),
        phases=tuple(
            _on_inner_state(p)._replace(server=server) if p.client else _on_inner_state(p) for p in algorithm.phases
        ),
        eval_model=lambda model, state: algorithm.eval_model(model, state.inner),
    )


def initial_stats(setting: core.Setting, key):
    """Returns the model statistics that a run starts from (BatchNorm's; () without)."""
    if setting.model is None:
        return ()
    stats = lambda key: setting.model.init(key).stats
    return () if tree.is_empty(jax.eval_shape(stats, key)) else jax.jit(stats)(key)
