"""The functions `init` and `apply` of a fedjax.FederatedAlgorithm, and the state that they pass on."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fedwin import engine, tree
from fedwin.core import Algorithm, Observer, Variables
from fedwin.engine.strategy import Strategy
from fedwin.errors import UserError
from fedwin.fedjax_bridge.cohort import Capacity, Padding, cohort_keys, cohort_members, pack, required_padding
from fedwin.fedjax_bridge.programs import ChunkedRound
from fedwin.fedjax_bridge.rows import with_table_rows
from fedwin.residence.rows import row_shapes


class ServerState(NamedTuple):
    """The state between two rounds; earlier states stay valid.

    Attributes:
      params: the parameters to evaluate.
      run: the engine's RunState without its client table; `run.params` are trained on, `run.observers` are what
        engine.read_out reads.
      rows: client id -> row of every client seen so far, each in its own buffers.
      initial: the initial parameters, from which rows of new clients are initialized; () for stateless clients.
    """

    params: Any
    run: engine.RunState
    rows: dict[bytes, Any]
    initial: Any


class Rounds:
    """Rounds of an algorithm on FedJAX's cohorts; an instance is the `apply` of a fedjax.FederatedAlgorithm.

    Args:
      algorithm: any algorithm.
      observers: name -> Observer.
      strategy: how a cohort is mapped.
      capacity: chooses the padding of cohorts.
      num_classes: width of the label counts, or None.
      total_examples: examples of all clients together, or None.
      compiler_options: passed to jax.jit.

    Attributes:
      traces: the Padding of every compiled round.
      step: the compiled round.
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
        with_rows = with_table_rows(algorithm, num_classes is not None, total_examples is not None, self._written)
        self.step = ChunkedRound(with_rows, observers, strategy, self.traces, compiler_options)

    def init(self, params) -> ServerState:
        """Returns the state before the first round.

        Args:
          params: initial parameters, or Variables for a model with statistics.

        Raises:
          UserError: when there are no parameters.
        """
        if tree.is_empty(params):
            raise UserError("as_fedjax: init takes the model's parameters, e.g. init(model.init(rng)); there are none.")
        model = params if isinstance(params, Variables) else Variables(params)
        # A client's row is initialized when the client is first seen.
        without_rows = self.algorithm._replace(client_init=lambda params, id, key: ())
        run = engine.init(without_rows, self.observers, model, 1, jax.random.PRNGKey(0), jax.random.key(0))
        stateless = tree.is_empty(row_shapes(self.algorithm, model.params))
        initial = () if stateless else jax.tree.map(jnp.copy, model.params)
        return ServerState(self.algorithm.eval_model(model, run.state).params, run, {}, initial)

    def __call__(self, state: ServerState, clients) -> tuple[ServerState, dict[bytes, Any]]:
        """Runs one round.

        Args:
          state: from `init` or the previous round.
          clients: (id, fedjax.ClientDataset, rng) of every client of the cohort.

        Returns:
          (state, client id -> {'loss': ..., 'delta_l2_norm': ...}).

        Raises:
          UserError: for another kind of state, a client drawn twice, or a cohort without examples.
        """
        if not isinstance(state, ServerState):
            raise UserError(f"as_fedjax: apply takes the state that init returns, not a {type(state).__name__}.")
        cohort = cohort_members(clients)
        if self.strategy.num_devices > 1:
            # Clients of similar size are trained at the same time, so that no device waits long for another.
            cohort.sort(key=lambda member: -member.size)
        padding = self.capacity.hold(required_padding(cohort))
        names = [member.name for member in cohort]
        store = pack(cohort, padding, self.num_classes, self.total_examples)
        rows = [state.rows.get(name) for name in names]
        params, run, rows, reports = self.step(
            state.run, state.initial, cohort_keys(cohort, padding), rows, store, padding
        )
        diagnostics = {
            name: {key: float(reports[key][k]) for key in sorted(self._written)} for k, name in enumerate(names)
        }
        new_rows = {} if tree.is_empty(state.initial) else dict(zip(names, rows, strict=True))
        return ServerState(params, run, state.rows | new_rows, state.initial), diagnostics
