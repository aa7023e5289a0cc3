"""Building blocks of wrappers: the Wrapper tuple, and a step after an algorithm's server function.

Averages that only read a trajectory (WIMA, EMA, SWA at a constant rate) are observers, not wrappers.
"""

import dataclasses
import re
from collections.abc import Callable
from typing import NamedTuple

import jax

from fedwin import core, tree, window
from fedwin.core import Algorithm, Phase, Variables
from fedwin.errors import UserError
from fedwin.registry import Registry
from fedwin.schedules import as_schedule
from fedwin.tree import PyTree
from fedwin.wrappers.accounting import Privacy


def unchanged(x):
    """Returns its argument."""
    return x


class Wrapper(NamedTuple):
    """Changes that a wrapper makes; `unchanged` leaves a constant schedule constant.

    A schedule is a function of the 0-based round (int32 [], traced).

    Attributes:
      name: name of the wrapper.
      algorithm: Algorithm -> Algorithm.
      rate: schedule -> schedule, the clients' learning rate.
      epochs: schedule -> schedule, the clients' local epochs.
      bound: (start, y) -> y, applied to a client's model after its last local step; None for none.
      frozen: as in local.Solver, the parameters that a local step leaves unchanged; None for none.
      privacy: the guarantee that the wrapper gives (accounting.Privacy), or None.
    """

    name: str
    algorithm: Callable = unchanged
    rate: Callable = unchanged
    epochs: Callable = unchanged
    bound: Callable | None = None
    frozen: Callable | None = None
    privacy: Privacy | None = None

    def solver(self, solve):
        """Returns a local solver with this wrapper's learning rate, number of epochs and bound."""
        if self.rate is not unchanged:
            solve = dataclasses.replace(solve, lr=self.rate(as_schedule(solve.lr)))
        if self.epochs is not unchanged:
            if solve.steps is not None or isinstance(solve.epochs, float):
                given = f"local_epochs={solve.epochs}" if solve.steps is None else f"local_steps={solve.steps}"
                raise UserError(
                    f"{self.name}: this schedule drops local epochs, which needs a whole number of them; set "
                    f"--local_epochs to an integer in place of {given}, or choose another schedule."
                )
            max_epochs = solve.max_epochs or (None if callable(solve.epochs) else int(solve.epochs))
            solve = dataclasses.replace(solve, epochs=self.epochs(as_schedule(solve.epochs)), max_epochs=max_epochs)
        if self.bound is not None:
            outer, inner = self.bound, solve.bound
            solve = dataclasses.replace(solve, bound=lambda start, y: outer(start, inner(start, y)))
        if self.frozen is not None:
            if solve.frozen is not None:
                raise UserError(f"{self.name}: another wrapper freezes parameters already; omit one of the two.")
            solve = dataclasses.replace(solve, frozen=self.frozen)
        return solve


# Builders have the signature builder(setting, *, option=...) -> Wrapper.
# warmup_horizon: the parameter that holds the number of rounds before the wrapper takes effect.
WRAPPERS = Registry("wrapper", rule="rule", builds=Wrapper, warmup_horizon="")


class Wrapped(NamedTuple):
    """Server state of a wrapped algorithm.

    Attributes:
      inner: state of the algorithm.
      own: state of the wrapper.
    """

    inner: PyTree
    own: PyTree


def unwrapped_names(name: str) -> list[str]:
    """Returns the names that a leaf of a run's state has with fewer wrappers around the algorithm.

    Example:
      >>> unwrapped_names("state.inner.inner.m")
      ['state.inner.m', 'state.m']
    """
    names = []
    # The field of the state, one `.inner` per wrapper around it, and the rest.
    while match := re.match(r"(\w+)\.inner(?!\w)", name):
        name = match[1] + name[match.end() :]
        names.append(name)
    return names


def _on_inner_state(phase: Phase) -> Phase:
    """Returns a phase of a wrapped algorithm, applied to Wrapped.inner instead of the whole state."""

    def server_alone(params, state, stats, round):
        params, inner, stats = phase.server(params, state.inner, stats, round)
        return params, state._replace(inner=inner), stats

    def server(params, state, total, round):
        params, inner = phase.server(params, state.inner, total, round)
        return params, state._replace(inner=inner)

    if phase.client is None:
        return phase._replace(server=server_alone)
    return phase._replace(broadcast=lambda params, state: phase.broadcast(params, state.inner), server=server)


def with_own_state(algorithm: Algorithm, init: Callable) -> Algorithm:
    """Returns an algorithm whose server state is Wrapped, with an own state that its phases leave unchanged.

    Args:
      init: (params, inner state, key) -> own state.
    """

    def init_wrapped(params, key):
        inner = algorithm.init(params, key)
        return Wrapped(inner, init(params, inner, key))

    return algorithm._replace(
        init=init_wrapped,
        phases=tuple(map(_on_inner_state, algorithm.phases)),
        eval_model=lambda model, state: algorithm.eval_model(model, state.inner),
    )


def with_own_rows(algorithm: Algorithm, init: Callable, change: Callable, own: Callable | None = None) -> Algorithm:
    """Returns an algorithm whose clients' rows are a wrapper's, with the algorithm's own row as `inner`.

    Args:
      init: (inner row, initial params, key) -> row.
      change: Phase -> Phase, of those in which clients take part; their clients get the wrapper's rows.
      own: (Variables, row) -> Variables with the parts that the wrapper keeps in the row; None: it keeps none.
    """

    def client_model(model, row):
        model = own(model, row) if own else model
        return algorithm.client_model(model, row.inner) if algorithm.client_model else model

    return core.with_client_phases(change, algorithm)._replace(
        client_init=lambda params, id, key: init(algorithm.client_init(params, id, key), params, key),
        client_model=client_model if own or algorithm.client_model else None,
    )


def after(algorithm: Algorithm, init: Callable, update: Callable, eval_model: Callable | None = None) -> Algorithm:
    """Returns an algorithm with an additional server step, which has its own state, at the end of every round.

    Args:
      init: (params, inner state, key) -> own state.
      update: (own state, Variables, inner state, round) -> (own state, Variables).
      eval_model: (Variables, Wrapped) -> Variables; by default the wrapped algorithm's.
    """

    def server(params, state, stats, round):
        own, model = update(state.own, Variables(params, stats), state.inner, round)
        return model.params, Wrapped(state.inner, own), model.stats

    inner, last = with_own_state(algorithm, init), Phase(lambda params, state: (), client=None, server=server)
    return inner._replace(phases=(*inner.phases, last), eval_model=eval_model or inner.eval_model)


def single_round_trip(algorithm: Algorithm, name: str) -> Phase:
    """Returns the only phase of an algorithm in which clients take part.

    Raises:
      UserError: when there are several round trips per round (MIME).
    """
    phases = [phase for phase in algorithm.phases if phase.client]
    if len(phases) != 1:
        raise UserError(f"{name} needs an algorithm with one round trip per round; this one has {len(phases)}.")
    return phases[0]


def check_no_old_models(wrapper: str, state) -> None:
    """Raises UserError if a server compares its models of several rounds (GHB), but clients receive others."""
    if tree.nodes(state, window.Delay):
        raise UserError(
            f"{wrapper}: the momentum of this algorithm is the difference of two server models, and clients would get "
            f"another one; choose --algorithm=fedhbm or local_ghb."
        )


def initial_stats(setting: core.Setting, key):
    """Returns the model statistics that a run starts from (BatchNorm's); () if there are none."""
    if tree.is_empty(core.stats_shapes(setting)):
        return ()
    return jax.jit(lambda key: setting.model.init(key).stats)(key)
