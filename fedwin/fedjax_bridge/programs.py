"""Compiled rounds of a FedJAX cohort: one program per chunk of clients, or one program on a mesh.

Both compute what `engine.one_round` computes. On one device a round is a small program per chunk of clients, so that
padded clients cost nothing and rows are arguments and results of their chunk. On several devices it is one program, and
rows travel through a client table with one slot per client of the padded cohort.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedwin import engine, tree
from fedwin.core import Algorithm, Observer, Variables
from fedwin.data.federation import Store
from fedwin.engine import RunState
from fedwin.engine.cohort import ClientInputs, SharedInputs, client_function
from fedwin.engine.strategy import Strategy
from fedwin.fedjax_bridge.cohort import CohortKeys, Padding
from fedwin.fedjax_bridge.rows import REPORTED, Row, no_reports
from fedwin.residence.client_table import row_shapes


class Sums(NamedTuple):
    """Running sums over the chunks of a round.

    Attributes:
      total: sum of (message, statistics, metrics) over the clients so far; None before the first chunk.
      reports: name -> reported number per client, [C].
    """

    total: Any
    reports: dict[str, Any]


class ChunkedRound:
    """Rounds on one device: engine.one_round as one program per chunk of clients, and one before and after a cohort.

    A row is an argument of its chunk's program and the new row a result, each with its own buffers. With one client
    per chunk no row is stacked, copied or transferred to the host.

    Args:
      algorithm: an algorithm whose table rows are Row.
      observers: name -> Observer.
      chunk: clients per program; None takes the entire cohort.
      traces: list to which the Padding of every compiled round is appended.
      compiler_options: passed to jax.jit.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        observers: dict[str, Observer],
        chunk: int | None,
        traces: list[Padding],
        compiler_options: dict | None = None,
    ):
        self.algorithm, self.observers, self.chunk, self.traces = algorithm, observers, chunk, traces
        self._clients = {n: phase.client for n, phase in enumerate(algorithm.phases) if phase.client is not None}
        self._zeros: dict[tuple[int, Padding], Any] = {}
        compiled = functools.partial(jax.jit, compiler_options=compiler_options)
        self._first_row = compiled(lambda initial, id: algorithm.client_init(initial, id, jax.random.key(0)))
        self._begin = compiled(self._traced_begin, static_argnames=("done", "number"))
        # Only the running sums are donated: earlier server states, and with them rows, stay valid.
        self._train = compiled(self._traced_train, static_argnames=("number", "padding"), donate_argnums=0)
        self._end = compiled(self._traced_end, static_argnames="done")

    def __call__(self, run: RunState, initial, keys: CohortKeys, rows: list[Any], store: Store, padding: Padding):
        """Runs one round.

        Args:
          run: the state without a client table.
          initial: parameters that new rows are initialized from; () for stateless clients.
          keys: numbers and keys of the padded cohort.
          rows: rows of its clients, None for clients that have none yet.
          store: their examples, padded.
          padding: the padded sizes.

        Returns:
          (params to evaluate, RunState, new rows, name -> reported numbers [C]).
        """
        fresh = functools.partial(self._first_row, initial) if not tree.is_empty(initial) else lambda id: ()
        rows = [fresh(keys.ids[k]) if row is None else row for k, row in enumerate(rows)]
        size = self.chunk or padding.clients
        store, keys, reports = jax.device_put((store, keys, no_reports(padding.clients)))
        sums, done = Sums(None, reports), -1
        for number in self._clients:
            fields, down = self._begin(run, sums.total, done=done, number=number)
            run = run._replace(**fields)
            shared = SharedInputs(down, run.stats, run.round, store)
            sums, done = sums._replace(total=None), number
            for first in range(0, len(rows), size):
                chunk = rows[first : first + size]
                padded = chunk + chunk[:1] * (size - len(chunk))
                part = np.int32(first), keys, padded
                if sums.total is None:
                    sums = sums._replace(total=self._zero_sum(sums, shared, *part, number, padding))
                sums, padded = self._train(sums, shared, *part, number=number, padding=padding)
                rows[first : first + size] = padded[: len(chunk)]
        params, run = self._end(run, sums.total, done=done)
        return params, run, rows, jax.device_get(sums.reports)

    def _zero_sum(self, sums: Sums, shared: SharedInputs, first, keys: CohortKeys, rows, number: int, padding: Padding):
        """Returns the sum over no client: zeros, every leaf in its own buffer, because the sums are donated."""
        if (number, padding) not in self._zeros:
            part = functools.partial(self._chunk, number=number, largest=padding.largest)
            shapes, _ = jax.eval_shape(part, shared, first, keys, rows, sums.reports)
            self._zeros[number, padding] = jax.jit(lambda: tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes))
        return self._zeros[number, padding]()

    def _chunk(
        self, shared: SharedInputs, first, keys: CohortKeys, rows: list[Any], reports, number: int, largest: int
    ):
        """Runs a phase for a chunk of clients: (summed contributions, their Rows; [size, ...] for several clients)."""
        run_client = client_function(self._clients[number], self.algorithm.weighting, largest)
        # A client alone runs without vmap: batched products of batch size 1 are slow.
        alone = len(rows) == 1
        place = first if alone else first + jnp.arange(len(rows), dtype=jnp.int32)
        id, key = keys.ids[place], keys.keys[place]
        slot = jnp.where(id >= 0, place, len(keys.ids))
        row = rows[0] if alone else tree.map(lambda *leaves: jnp.stack(leaves), *rows)
        own = ClientInputs(id, place, slot, key, Row(row, key, tree.map(lambda leaf: leaf[place], reports)))
        if alone:
            return run_client(shared, own)
        summed, new = jax.vmap(run_client, (None, 0))(shared, own)
        return tree.map(lambda x: jnp.sum(x, 0), summed), new

    def _traced_train(
        self, sums: Sums, shared: SharedInputs, first, keys: CohortKeys, rows, *, number: int, padding: Padding
    ):
        """Trains a chunk of clients in phase `number`: (new sums, list of new rows)."""
        if number == min(self._clients):
            self.traces.append(padding)  # once per trace
        summed, new = self._chunk(shared, first, keys, rows, sums.reports, number, padding.largest)
        place = first if len(rows) == 1 else first + jnp.arange(len(rows), dtype=jnp.int32)
        reports = tree.map(lambda leaf, value: leaf.at[place].set(value), sums.reports, new.report)
        split = (
            [new.row] if len(rows) == 1 else [tree.map(lambda leaf, k=k: leaf[k], new.row) for k in range(len(rows))]
        )
        return Sums(tree.add(sums.total, summed), reports), split

    def _server_steps(self, run: RunState, total, done: int) -> dict[str, Any]:
        """Returns the fields of RunState that change in the server steps between two phases of clients.

        Args:
          run: the state.
          total: sum over the cohort after phase `done`, or None before the first phase of clients.
          done: number of the last phase of clients, -1 for none.
        """
        params, stats, state, phases = run.params, run.stats, run.state, self.algorithm.phases
        phase = done + 1
        if total is not None:
            message, mean_stats, _ = total
            stats = mean_stats.value if mean_stats else stats
            params, state = phases[done].server(params, state, message, run.round)
        while phase < len(phases) and phases[phase].client is None:
            params, state, stats = phases[phase].server(params, state, stats, run.round)
            phase += 1
        changed = total is not None or phase > done + 1
        return dict(params=params, stats=stats, state=state) if changed else {}

    def _traced_begin(self, run: RunState, total, *, done: int, number: int):
        """Computes everything before phase `number` of clients: (changed fields of RunState, the broadcast)."""
        changed = self._server_steps(run, total, done)
        run = run._replace(**changed)
        return changed, self.algorithm.phases[number].broadcast(run.params, run.state)

    def _traced_end(self, run: RunState, total, *, done: int):
        """Computes everything after the last phase of clients: (params to evaluate, RunState)."""
        changed = self._server_steps(run, total, done)
        # As in engine.one_round: without the barrier, observers may be fused into training.
        run = run._replace(**jax.lax.optimization_barrier(changed))
        model = self.algorithm.eval_model(Variables(run.params, run.stats), run.state)
        seen = {name: self.observers[name].update(run.round, model, s) for name, s in run.observers.items()}
        return model.params, run._replace(observers=seen, round=run.round + 1)


class MeshRound:
    """Rounds on a mesh: engine.one_round with a client table of one slot per client of the padded cohort.

    Args:
      algorithm: an algorithm whose table rows are Row.
      observers: name -> Observer.
      strategy: how a cohort is mapped to the devices.
      traces: list to which the Padding of every compiled round is appended.
      compiler_options: passed to jax.jit.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        observers: dict[str, Observer],
        strategy: Strategy,
        traces: list[Padding],
        compiler_options: dict | None = None,
    ):
        self.algorithm, self.observers, self.strategy, self.traces = algorithm, observers, strategy, traces
        self._round = jax.jit(self._traced, static_argnames="padding", compiler_options=compiler_options)

    def __call__(
        self, run: engine.RunState, initial, keys: CohortKeys, rows: list[Any], store: Store, padding: Padding
    ):
        """Runs one round; arguments and results as those of ChunkedRound."""
        shapes = row_shapes(self.algorithm, initial)
        has_row = np.zeros(padding.clients, bool)
        has_row[: len(rows)] = [row is not None for row in rows]
        inputs = self.strategy.place((run, initial, stack_rows(rows, shapes, padding.clients), has_row, keys, store))
        params, run, table, reports = self._round(*inputs, padding=padding)
        table, reports = jax.device_get((table, reports))
        return params, run, [unstack_row(table, k) for k in range(len(rows))], reports

    def _traced(self, run: engine.RunState, initial, rows, has_row, keys: CohortKeys, store, padding: Padding):
        """Computes one round with a slot per client: (params to evaluate, RunState, rows, reports)."""
        self.traces.append(padding)  # once per trace
        ids = keys.ids
        fresh = jax.vmap(self.algorithm.client_init, (None, 0, None))(initial, jnp.maximum(ids, 0), jax.random.key(0))
        rows = jax.vmap(tree.where)(has_row, rows, fresh)
        table = Row(rows, keys.keys, {name: jnp.zeros(padding.clients) for name in REPORTED})
        place = jnp.arange(padding.clients, dtype=jnp.int32)
        slots = jnp.where(ids >= 0, place, padding.clients)
        one_round = functools.partial(engine.one_round, self.algorithm, self.observers, self.strategy, padding.largest)
        run, _ = one_round(run._replace(table=table), store, ids, place, slots)
        model = self.algorithm.eval_model(Variables(run.params, run.stats), run.state)
        return model.params, run._replace(table=()), run.table.row, run.table.report


def stack_rows(rows: list[Any], shapes, clients: int):
    """Returns the rows of a cohort stacked, [clients, ...]; zeros for padding and for clients without a row.

    Args:
      rows: rows of the clients, None for clients without one; at most `clients`.
      shapes: a row's tree of jax.ShapeDtypeStruct.
      clients: clients of the padded cohort.
    """
    zero = tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
    padded = [zero if row is None else row for row in rows] + [zero] * (clients - len(rows))
    return tree.map(lambda *leaves: np.stack(leaves), *padded)


def unstack_row(rows, k: int):
    """Returns a copy of row k of stacked rows."""
    # A view of one row would keep the entire cohort's table alive.
    return tree.map(lambda leaf: np.array(leaf[k]), rows)
