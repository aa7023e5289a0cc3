"""The functions `init` and `apply` of a fedjax.FederatedAlgorithm, and the state that they pass on."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedwin import core, engine, tree
from fedwin.algorithms.agnostic import AgnosticState
from fedwin.core import Algorithm, Client, Cohort, Observer, Phase, Variables
from fedwin.engine.placement import replicated
from fedwin.engine.strategy import Strategy
from fedwin.errors import UserError
from fedwin.fedjax_bridge.cohort import Capacity, Member, Padding, client_number, cohort_members, pack, required_padding
from fedwin.residence.rows import row_shapes
from fedwin.tree import PyTree

# Reported numbers per client, where the algorithm provides them: mean training loss and norm of the step.
REPORTED = ("loss", "delta_l2_norm")


class ServerState(NamedTuple):
    """The state between two rounds; earlier states stay valid.

    Attributes:
      run: the engine's RunState without its client table; `run.params` are trained on, `run.observers` are what
        engine.read_out reads.
      rows: client id -> row of every client seen so far, each in its own buffers.
      initial: the initial parameters, from which rows of new clients are initialized; () for stateless clients.
    """

    params: PyTree
    run: engine.RunState
    rows: dict[bytes, PyTree]
    initial: PyTree


class ClientRow(NamedTuple):
    """A row of the round's client table: an algorithm's row, data of the client's key, name -> reported number."""

    inner: PyTree
    key: jax.Array
    report: dict[str, jax.Array]


class ClientWithoutWeight(Client):
    """A client whose share of all examples is unknown because total_examples was not given."""

    @property
    def weight(self):
        """Not available.

        Raises:
          UserError: always.
        """
        raise UserError("as_fedjax: this algorithm weights clients by their share of all examples; set total_examples.")


class UnknownCounts(dict):
    """Label counts of a client where num_classes was not given: reading them raises UserError."""

    def __contains__(self, name) -> bool:
        return True

    def __missing__(self, name):
        raise UserError(f"as_fedjax: the loss or algorithm reads label counts ('{name}'); set num_classes.")


class Rounds:
    """Rounds of an algorithm on FedJAX's cohorts; an instance is the `apply` of a fedjax.FederatedAlgorithm.

    Attributes:
      traces: the Padding of every compiled round.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        observers: dict[str, Observer],
        strategy: Strategy,
        capacity: Capacity,
        num_classes: int | None,
        total_examples: int | None,
        compiler_options: dict,
    ):
        self.algorithm, self.observers, self.strategy, self.capacity = algorithm, observers, strategy, capacity
        self.num_classes, self.total_examples = num_classes, total_examples
        self.traces: list[Padding] = []
        # Names that the clients of this algorithm report, known once a round is traced.
        self._reported: set[str] = set()
        phases = tuple(self._with_rows(number, phase) for number, phase in enumerate(algorithm.phases))
        self._with_client_rows = algorithm._replace(phases=phases)
        first_row = lambda initial, id: algorithm.client_init(initial, id, jax.random.key(0))
        self._first_row = jax.jit(first_row, compiler_options=compiler_options)
        whole: dict[str, Any] = {} if strategy.mesh is None else {"out_shardings": replicated(strategy.mesh)}
        # Nothing is donated: earlier server states, and with them rows, stay valid.
        self._round = jax.jit(self._traced, static_argnames="padding", compiler_options=compiler_options, **whole)

    def init(self, params) -> ServerState:
        """Returns the state before the first round.

        Args:
          params: initial parameters, or Variables for a model with statistics.

        Raises:
          UserError: when parameters are missing or not floats, or clients would be weighted by their numbers.
        """
        model = params if isinstance(params, Variables) else Variables(params)
        is_float = lambda leaf: jnp.issubdtype(getattr(leaf, "dtype", type(leaf)), jnp.inexact)
        if tree.is_empty(params) or not all(map(is_float, jax.tree.leaves(model.params))):
            raise UserError("as_fedjax: init takes the model's parameters, arrays of floats: init(model.init(rng)).")
        # A client's row is initialized when the client is first seen.
        without_rows = self.algorithm._replace(client_init=lambda params, id, key: ())
        run = engine.init(without_rows, self.observers, model, 1, jax.random.PRNGKey(0), jax.random.key(0))
        if tree.nodes(run.state, AgnosticState):  # weights would stay equal, silently
            raise UserError("agnostic weights clients by their numbers or domains, which FedJAX lacks; use fedwin.run.")
        stateless = tree.is_empty(row_shapes(self.algorithm, model.params))
        initial = () if stateless else jax.tree.map(jnp.copy, model.params)
        return ServerState(self.algorithm.eval_model(model, run.state).params, run, {}, initial)

    def __call__(self, state: ServerState, clients) -> tuple[ServerState, dict[bytes, dict[str, float]]]:
        """Runs one round.

        Args:
          clients: (id, fedjax.ClientDataset, rng) of every client of the cohort.

        Returns:
          (state, client id -> {'loss': ..., 'delta_l2_norm': ...}).

        Raises:
          UserError: for another kind of state, a client drawn twice, or a cohort without examples.
        """
        if not isinstance(state, ServerState):
            raise UserError(f"as_fedjax: apply takes the state that init returns, not a {type(state).__name__}.")
        members = cohort_members(clients)
        devices = self.strategy.num_devices
        if devices > 1:
            members.sort(key=lambda member: -member.size)
        padding = self.capacity.hold(required_padding(members))
        # Clients of similar size are trained at the same time, so that no device waits long for another.
        turns = np.arange(padding.clients)
        places = (turns % devices * (padding.clients // devices) + turns // devices)[: len(members)]
        fresh = lambda number: () if tree.is_empty(state.initial) else self._first_row(state.initial, number)
        known = [state.rows[m.name] if m.name in state.rows else fresh(client_number(m.name)) for m in members]
        table: list[PyTree] = [known[0]] * padding.clients
        for place, row in zip(places, known, strict=True):
            table[place] = row
        store = pack(members, padding, self.num_classes, self.total_examples)
        inputs = (state.run, table, *_cohort(members, places, padding.clients), store)
        params, run, table, reports = self._round(*self.strategy.place(inputs), padding=padding)
        reports, names = jax.device_get(reports), sorted(self._reported)
        diagnostics = {
            member.name: {name: float(reports[name][place]) for name in names}
            for member, place in zip(members, places, strict=True)
        }
        if not tree.is_empty(state.initial):
            on_one_device = lambda row: jax.tree.map(lambda leaf: leaf.addressable_data(0), row)
            new = {member.name: on_one_device(table[place]) for member, place in zip(members, places, strict=True)}
            state = state._replace(rows=state.rows | new)
        return state._replace(params=params, run=run), diagnostics

    def _traced(self, run, rows: list[PyTree], cohort: Cohort, keys, store, *, padding: Padding):
        """Runs a round on rows of every place: (params to evaluate, RunState, new rows, name -> reports [C])."""
        self.traces.append(padding)  # once per trace
        inner = tree.map(lambda *leaves: jnp.stack(leaves), *rows)
        blank = {name: jnp.zeros(padding.clients, jnp.float32) for name in REPORTED}
        run = run._replace(table=ClientRow(inner, keys, blank))
        with self.strategy.mesh_context():
            run, _ = engine.one_round(
                self._with_client_rows, self.observers, self.strategy, padding.largest, run, store, cohort
            )
            model = self.algorithm.eval_model(Variables(run.params, run.stats), run.state)
        table = run.table
        rows = [tree.map(lambda leaf, k=k: leaf[k], table.inner) for k in range(padding.clients)]
        return model.params, run._replace(table=()), rows, table.report

    def _with_rows(self, number: int, phase: Phase) -> Phase:
        """Returns a phase whose clients read their key from a ClientRow and write their report into it."""
        if (client_part := phase.client) is None:
            return phase

        def client(down, c: Client):
            own: ClientRow = c.state
            c = c._replace(key=jax.random.fold_in(jax.random.wrap_key_data(own.key), number))
            c = c if self.num_classes is not None else c._replace(info=UnknownCounts())
            c = c if self.total_examples is not None else ClientWithoutWeight(*c)
            update, inner = core.on_inner_row(client_part, down, c)
            report = client_report(update)
            self._reported.update(report)
            return update._replace(state=ClientRow(inner, own.key, own.report | report))

        return phase._replace(client=client)


def _cohort(members: Sequence[Member], places: np.ndarray, width: int) -> tuple[Cohort, np.ndarray]:
    """Returns the cohort of clients in their places, and the data of their keys, uint32 [width, 2]."""
    ids, rows, keys = np.zeros(width, np.int32), np.zeros(width, np.int32), np.zeros((width, 2), np.uint32)
    slots = np.full(width, width, np.int32)
    ids[places] = [client_number(member.name) for member in members]
    rows[places], slots[places] = np.arange(len(members)), places
    keys[places] = [member.key_data for member in members]
    return Cohort(ids, slots < width, rows, slots, size=np.asarray(len(members), np.int32)), keys


def client_report(update: core.Update) -> dict[str, jax.Array]:
    """Returns the reported numbers that an update provides, name -> float32 []."""
    report = {}
    if "loss" in update.metrics:
        report["loss"] = update.metrics["loss"].value
    step = core.mean_step_of(update.message)
    if step is not None:
        report["delta_l2_norm"] = tree.norm(step.value)
    return {name: jnp.asarray(value, jnp.float32) for name, value in report.items()}
