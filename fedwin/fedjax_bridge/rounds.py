"""Rounds of an algorithm in a FedJAX program: what `init` and `apply` do."""

import functools
import zlib
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedwin import engine, tree
from fedwin.core import Algorithm, Observer, Variables
from fedwin.engine.strategy import Strategy
from fedwin.errors import UserError
from fedwin.fedjax_bridge.capacity import Capacity, Padding
from fedwin.fedjax_bridge.packing import members, need, pack
from fedwin.fedjax_bridge.rows import REPORTED, Row, in_rows, split, stacked


class ServerState(NamedTuple):
    """What FedJAX passes from round to round; a value like any other, old ones stay valid.

    Attributes:
      params: the model to evaluate.
      run: the engine's RunState without its table; its `params` are those that train, its `observers` what
        engine.read_out reads.
      rows: client id -> row, of the clients seen so far.
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
        self._in_rows = in_rows(algorithm, num_classes is not None, total_examples is not None, self._written)
        self._round = jax.jit(self._traced, static_argnames="padding", compiler_options=compiler_options)

    def init(self, params) -> ServerState:
        """Returns the state before the first round; `params` may be Variables."""
        if tree.is_empty(params):
            raise UserError("as_fedjax: init takes the model's parameters, e.g. init(model.init(rng)); there are none.")
        model = params if isinstance(params, Variables) else Variables(params)
        # Rows are made when a client is first seen.
        without_rows = self.algorithm._replace(client_init=lambda params, id, key: ())
        run = engine.init(without_rows, self.observers, model, 1, jax.random.PRNGKey(0), jax.random.key(0))
        stateless = tree.is_empty(self._row(model.params))
        initial = () if stateless else jax.tree.map(jnp.copy, model.params)
        return ServerState(self.algorithm.eval_model(model, run.state).params, run, {}, initial)

    def __call__(self, state: ServerState, clients) -> tuple[ServerState, dict[bytes, Any]]:
        """Runs one round: (state, client id -> what is reported of it)."""
        if not isinstance(state, ServerState):
            raise UserError(f"as_fedjax: apply takes the state that init returns, not a {type(state).__name__}.")
        cohort = members(clients)
        names = [member.name for member in cohort]
        padding = self.capacity.hold(need(cohort))
        rows = stacked(state.rows, names, self._row(state.initial), padding.clients)
        known, keys = np.zeros(padding.clients, bool), np.zeros((padding.clients, 2), np.uint32)
        known[: len(names)] = [name in state.rows for name in names]
        keys[: len(names)] = [member.key_data for member in cohort]
        ids = np.full(padding.clients, -1, np.int32)
        # Numbers that depend on the names alone, not on who was seen before.
        ids[: len(names)] = [zlib.crc32(name) & 0x7FFFFFFF for name in names]
        store = pack(cohort, padding, self.num_classes, self.total_examples)
        inputs = self.strategy.place((state.run, state.initial, rows, known, keys, store, ids))
        params, run, rows, report = self._round(*inputs, padding=padding)
        rows, report = jax.device_get((rows, report))
        told = {name: {key: float(report[key][k]) for key in sorted(self._written)} for k, name in enumerate(names)}
        return ServerState(params, run, state.rows | split(rows, names), state.initial), told

    def _row(self, params):
        """The shapes of a client's row."""
        return jax.eval_shape(self.algorithm.client_init, params, jnp.zeros((), jnp.int32), jax.random.key(0))

    def _traced(self, run: engine.RunState, initial, rows, known, keys, store, ids, padding: Padding):
        """One round on a table with a slot per client: (model to evaluate, RunState, rows, report)."""
        self.traces.append(padding)  # once per trace
        fresh = jax.vmap(self.algorithm.client_init, (None, 0, None))(initial, jnp.maximum(ids, 0), jax.random.key(0))
        rows = jax.vmap(tree.where)(known, rows, fresh)
        table = Row(rows, keys, {name: jnp.zeros(padding.clients) for name in REPORTED})
        place = jnp.arange(padding.clients, dtype=jnp.int32)
        slots = jnp.where(ids >= 0, place, padding.clients)
        one_round = functools.partial(engine.one_round, self._in_rows, self.observers, self.strategy, padding.largest)
        run, _ = one_round(run._replace(table=table), store, ids, place, slots)
        model = self.algorithm.eval_model(Variables(run.params, run.stats), run.state)
        return model.params, run._replace(table=()), run.table.row, run.table.report
