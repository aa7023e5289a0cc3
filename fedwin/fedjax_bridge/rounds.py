"""Rounds of an algorithm in a FedJAX program: what `init` and `apply` do."""

import zlib
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedwin import engine, tree
from fedwin.core import Algorithm, Observer, Variables
from fedwin.engine.strategy import Strategy
from fedwin.errors import UserError
from fedwin.fedjax_bridge.at_once import AtOnce
from fedwin.fedjax_bridge.capacity import Capacity, Padding
from fedwin.fedjax_bridge.one_by_one import OneByOne
from fedwin.fedjax_bridge.packing import Member, members, need, pack
from fedwin.fedjax_bridge.rows import Seats, in_rows
from fedwin.residence.client_table import row_shapes


class ServerState(NamedTuple):
    """What FedJAX passes from round to round; a value like any other, old ones stay valid.

    Attributes:
      params: the model to evaluate.
      run: the engine's RunState without its table; its `params` are those that train, its `observers` what
        engine.read_out reads.
      rows: client id -> row, of the clients seen so far, each in buffers of its own.
      initial: the first params, which new rows are made from; () where clients keep nothing.
    """

    params: Any
    run: engine.RunState
    rows: dict[bytes, Any]
    initial: Any


class Rounds:
    """An algorithm's rounds on FedJAX's cohorts; calling it is fedjax.FederatedAlgorithm.apply.

    Args:
      algorithm: any.
      observers: name -> Observer.
      strategy: how a cohort is mapped.
      capacity: what cohorts are padded to.
      num_classes: width of the label counts, or None.
      total_examples: of all clients together, or None.
      compiler_options: handed to jax.jit.

    Attributes:
      traces: the Padding of every compiled round.
      step: how a round is computed: OneByOne, or AtOnce on several devices.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        observers: dict[str, Observer],
        strategy: Strategy,
        capacity: Capacity,
        num_classes: int | None = None,
        total_examples: int | None = None,
        compiler_options: dict | None = None,
    ):
        self.algorithm, self.observers, self.strategy, self.capacity = algorithm, observers, strategy, capacity
        self.num_classes, self.total_examples = num_classes, total_examples
        self.traces: list[Padding] = []
        self._written: set[str] = set()
        with_rows = in_rows(algorithm, num_classes is not None, total_examples is not None, self._written)
        self.step: OneByOne | AtOnce
        if strategy.mesh is None:
            self.step = OneByOne(with_rows, observers, strategy.chunk, self.traces, compiler_options)
        else:
            self.step = AtOnce(with_rows, observers, strategy, self.traces, compiler_options)

    def init(self, params) -> ServerState:
        """Returns the state before the first round; `params` may be Variables."""
        if tree.is_empty(params):
            raise UserError("as_fedjax: init takes the model's parameters, e.g. init(model.init(rng)); there are none.")
        model = params if isinstance(params, Variables) else Variables(params)
        # Rows are made when a client is first seen.
        without_rows = self.algorithm._replace(client_init=lambda params, id, key: ())
        run = engine.init(without_rows, self.observers, model, 1, jax.random.PRNGKey(0), jax.random.key(0))
        stateless = tree.is_empty(row_shapes(self.algorithm, model.params))
        initial = () if stateless else jax.tree.map(jnp.copy, model.params)
        return ServerState(self.algorithm.eval_model(model, run.state).params, run, {}, initial)

    def __call__(self, state: ServerState, clients) -> tuple[ServerState, dict[bytes, Any]]:
        """Runs one round: (state, client id -> what is reported of it)."""
        if not isinstance(state, ServerState):
            raise UserError(f"as_fedjax: apply takes the state that init returns, not a {type(state).__name__}.")
        cohort = members(clients)
        padding = self.capacity.hold(need(cohort))
        names = [member.name for member in cohort]
        store = pack(cohort, padding, self.num_classes, self.total_examples)
        rows = [state.rows.get(name) for name in names]
        params, run, rows, reports = self.step(state.run, state.initial, seats(cohort, padding), rows, store, padding)
        told = {name: {key: float(reports[key][k]) for key in sorted(self._written)} for k, name in enumerate(names)}
        kept = {} if tree.is_empty(state.initial) else dict(zip(names, rows, strict=True))
        return ServerState(params, run, state.rows | kept, state.initial), told


def seats(cohort: list[Member], padding: Padding) -> Seats:
    """Returns numbers and rngs of a cohort, padded."""
    ids, keys = np.full(padding.clients, -1, np.int32), np.zeros((padding.clients, 2), np.uint32)
    # Numbers that depend on the names alone, not on who was seen before.
    ids[: len(cohort)] = [zlib.crc32(member.name) & 0x7FFFFFFF for member in cohort]
    keys[: len(cohort)] = [member.key_data for member in cohort]
    return Seats(ids, keys)
