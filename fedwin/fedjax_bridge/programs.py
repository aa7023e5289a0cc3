"""Compiled rounds of a FedJAX cohort: a program per chunk of clients on every device, and one before and after.

They compute what `engine.one_round` computes. Chunks without clients are not run, so that padding costs nothing, and
rows are arguments and results of their chunk. On several devices the programs have no communication: every device adds
up its own clients, and the sums meet in the server's step, on the first device.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedwin import tree
from fedwin.core import Algorithm, Observer, Variables
from fedwin.data.federation import Store
from fedwin.engine import RunState
from fedwin.engine.cohort import ClientInputs, SharedInputs, client_function
from fedwin.engine.strategy import Strategy
from fedwin.fedjax_bridge.cohort import CohortKeys, Padding
from fedwin.fedjax_bridge.devices import EveryDevice, OneDevice
from fedwin.fedjax_bridge.rows import REPORTED, Row
from fedwin.residence.rows import row_shapes


class Sums(NamedTuple):
    """Running sums over the chunks of a round.

    Attributes:
      total: sum of (message, statistics, metrics) over the clients so far.
      reports: name -> reported number per client, [C].
    """

    total: Any
    reports: dict[str, Any]


class ChunkedRound:
    """Rounds of an algorithm: engine.one_round as one program per chunk of clients, and one before and after a cohort.

    A row is an argument of its chunk's program and the new row a result, each with its own buffers. With one client
    per chunk no row is stacked, copied or transferred to the host, but for rows that are on another device than the one
    that trains their client now.

    Args:
      algorithm: an algorithm whose table rows are Row.
      observers: name -> Observer.
      strategy: how a cohort is mapped; on a mesh, its clients k, k + 1, ... are trained by different devices.
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
        self.algorithm, self.observers, self.chunk, self.traces = algorithm, observers, strategy.chunk, traces
        self.devices = OneDevice() if strategy.mesh is None else EveryDevice(strategy.mesh)
        self._clients = {n: phase.client for n, phase in enumerate(algorithm.phases) if phase.client is not None}
        self._zeros: dict[tuple[int, Padding], Any] = {}
        self._row: Any = None  # shapes of a client's row, set in the first round
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
        if self._row is None:
            self._row = () if tree.is_empty(initial) else row_shapes(self.algorithm, initial)
        rows = [self._fresh(initial, keys.ids[k]) if row is None else row for k, row in enumerate(rows)]
        size = self.devices.number * (self.chunk or padding.clients // self.devices.number)
        store, keys = self.devices.everywhere(jax.device_put((store, keys)))
        reports, totals, done = None, None, -1
        for number in self._clients:
            fields, down = self._begin(run, totals, done=done, number=number)
            run, done = run._replace(**fields), number
            down, stats, round = self.devices.everywhere((down, run.stats, run.round))
            shared = SharedInputs(down, stats, round, store)
            sums = self._zero_sums(shared, keys, rows[0], reports, number, padding)
            for first in range(0, len(rows), size):
                chunk = rows[first : first + size]
                padded = self.devices.joined(chunk + chunk[:1] * (size - len(chunk)))
                sums, new = self._train(sums, padded, np.int32(first), shared, keys, number=number, padding=padding)
                rows[first : first + size] = self.devices.parted(new, self._row)[: len(chunk)]
            totals, reports = self.devices.gathered(sums.total), sums.reports
        params, run = self._end(run, totals, done=done)
        return params, run, rows, self.devices.reports(reports)

    def _fresh(self, initial, id):
        return () if tree.is_empty(initial) else self._first_row(initial, id)

    def _zero_sums(self, shared: SharedInputs, keys: CohortKeys, row, reports, number: int, padding: Padding) -> Sums:
        """Returns the sums before phase `number`, every leaf in its own buffer, because the sums are donated.

        Args:
          shared: inputs that all clients share.
          keys: numbers and keys of the padded cohort.
          row: of any client.
          reports: those of the phase before; None before the first.
          number: of the phase.
          padding: the padded sizes.
        """
        if (number, padding) not in self._zeros:
            rows = [row] * (self.chunk or padding.clients // self.devices.number)
            blank = {name: jax.ShapeDtypeStruct((padding.clients,), np.float32) for name in REPORTED}
            part = functools.partial(self._chunk, number=number, largest=padding.largest)
            total, _ = jax.eval_shape(part, rows, np.int32(0), shared, keys, blank)
            self._zeros[number, padding] = self.devices.zeros(total), self.devices.zeros(blank)
        total, blank = self._zeros[number, padding]
        return Sums(total(), blank() if reports is None else reports)

    def _places(self, first, clients: int):
        """Returns the places in the cohort of a device's clients, int32 [clients], or [] of one client.

        Args:
          first: the place of the first one.
          clients: their number.
        """
        # A client alone runs without vmap: batched products of batch size 1 are slow.
        return first if clients == 1 else first + self.devices.number * jnp.arange(clients, dtype=jnp.int32)

    def _chunk(
        self, rows: list[Any], first, shared: SharedInputs, keys: CohortKeys, reports, number: int, largest: int
    ):
        """Runs a phase for a chunk of clients: (summed contributions, their Rows; [size, ...] for several clients)."""
        run_client = client_function(self._clients[number], self.algorithm.weighting, largest)
        place = self._places(first, len(rows))
        id, key = keys.ids[place], keys.keys[place]
        slot = jnp.where(id >= 0, place, len(keys.ids))
        row = rows[0] if len(rows) == 1 else tree.map(lambda *leaves: jnp.stack(leaves), *rows)
        own = ClientInputs(id, place, slot, key, Row(row, key, tree.map(lambda leaf: leaf[place], reports)))
        if len(rows) == 1:
            return run_client(shared, own)
        summed, new = jax.vmap(run_client, (None, 0))(shared, own)
        return tree.map(lambda x: jnp.sum(x, 0), summed), new

    def _train_chunk(self, sums: Sums, rows, device, first, shared, keys, *, number: int, largest: int):
        """Trains the chunk of one device: (new sums, list of new rows)."""
        summed, new = self._chunk(rows, first + device, shared, keys, sums.reports, number, largest)
        place = self._places(first + device, len(rows))
        reports = tree.map(lambda leaf, value: leaf.at[place].set(value), sums.reports, new.report)
        split = (
            [new.row] if len(rows) == 1 else [tree.map(lambda leaf, k=k: leaf[k], new.row) for k in range(len(rows))]
        )
        return Sums(tree.add(sums.total, summed), reports), split

    def _traced_train(
        self, sums: Sums, rows, first, shared: SharedInputs, keys: CohortKeys, *, number: int, padding: Padding
    ):
        """Trains a chunk per device in phase `number`: (new sums, list of new rows)."""
        if number == min(self._clients):
            self.traces.append(padding)  # once per trace
        train = functools.partial(self._train_chunk, number=number, largest=padding.largest)
        return self.devices.program(train, self._row)(sums, rows, first, shared, keys)

    def _server_steps(self, run: RunState, totals, done: int) -> dict[str, Any]:
        """Returns the fields of RunState that change in the server steps between two phases of clients.

        Args:
          run: the state.
          totals: sums of the devices after phase `done`, or None before the first phase of clients.
          done: number of the last phase of clients, -1 for none.
        """
        params, stats, state, phases = run.params, run.stats, run.state, self.algorithm.phases
        phase = done + 1
        if totals is not None:
            message, mean_stats, _ = self.devices.added(totals)
            stats = mean_stats.value if mean_stats else stats
            params, state = phases[done].server(params, state, message, run.round)
        while phase < len(phases) and phases[phase].client is None:
            params, state, stats = phases[phase].server(params, state, stats, run.round)
            phase += 1
        changed = totals is not None or phase > done + 1
        return dict(params=params, stats=stats, state=state) if changed else {}

    def _traced_begin(self, run: RunState, totals, *, done: int, number: int):
        """Computes everything before phase `number` of clients: (changed fields of RunState, the broadcast)."""
        changed = self._server_steps(run, totals, done)
        run = run._replace(**changed)
        return changed, self.algorithm.phases[number].broadcast(run.params, run.state)

    def _traced_end(self, run: RunState, totals, *, done: int):
        """Computes everything after the last phase of clients: (params to evaluate, RunState)."""
        changed = self._server_steps(run, totals, done)
        # As in engine.one_round: without the barrier, observers may be fused into training.
        run = run._replace(**jax.lax.optimization_barrier(changed))
        model = self.algorithm.eval_model(Variables(run.params, run.stats), run.state)
        seen = {name: self.observers[name].update(run.round, model, s) for name, s in run.observers.items()}
        return model.params, run._replace(observers=seen, round=run.round + 1)
