"""A round as small programs, a chunk of clients each: no client is padded, and rows go straight in and out."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedwin import tree
from fedwin.core import Algorithm, Observer, Variables
from fedwin.data.store import Store
from fedwin.engine import RunState
from fedwin.engine.cohort import Own, Shared, work
from fedwin.fedjax_bridge.capacity import Padding
from fedwin.fedjax_bridge.rows import Row, Seats, no_reports
from fedwin.models.convolution.program_cache import unkept


class Sums(NamedTuple):
    """What goes from chunk to chunk.

    Attributes:
      total: sum of what clients return; None before the first one.
      reports: name -> number per client [C].
    """

    total: Any
    reports: dict[str, Any]


class OneByOne:
    """Rounds on one device: engine.one_round, cut where a cohort begins and ends.

    A row is an argument of its chunk's program and the new row a result, each with buffers of its own; where a chunk is
    one client nothing is stacked, copied or brought to the host.

    Args:
      algorithm: any, its table rows being Row.
      observers: name -> Observer.
      chunk: clients per program; None: all of a cohort.
      traces: gets the Padding of every compiled round.
      compiler_options: handed to jax.jit.
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
        # Only running sums are given away: states, and with them rows, stay valid.
        train = compiled(self._traced_train, static_argnames=("number", "padding"), donate_argnums=0)
        self._train = unkept()(train)
        self._end = compiled(self._traced_end, static_argnames="done")

    def __call__(self, run: RunState, initial, seats: Seats, rows: list[Any], store: Store, padding: Padding):
        """Runs one round: (model to evaluate, RunState, new rows, name -> what is reported of the clients [C]).

        Args:
          run: the state without a table.
          initial: what new rows are made from; () where clients keep nothing.
          seats: the padded cohort.
          rows: of its clients, None for one that has none yet.
          store: their examples, padded.
          padding: what they are padded to.
        """
        fresh = functools.partial(self._first_row, initial) if not tree.is_empty(initial) else lambda id: ()
        rows = [fresh(seats.ids[k]) if row is None else row for k, row in enumerate(rows)]
        size = self.chunk or padding.clients
        store, seats, reports = jax.device_put((store, seats, no_reports(padding.clients)))
        sums, done = Sums(None, reports), -1
        for number in self._clients:
            begun, down = self._begin(run, sums.total, done=done, number=number)
            run = run._replace(**begun)
            shared = Shared(down, run.stats, run.round, store)
            sums, done = sums._replace(total=None), number
            for first in range(0, len(rows), size):
                there = rows[first : first + size]
                some = there + there[:1] * (size - len(there))  # places that stay empty
                part = np.int32(first), seats, some
                if sums.total is None:
                    sums = sums._replace(total=self._nothing(sums, shared, *part, number, padding))
                sums, some = self._train(sums, shared, *part, number=number, padding=padding)
                rows[first : first + size] = some[: len(there)]
        params, run = self._end(run, sums.total, done=done)
        return params, run, rows, jax.device_get(sums.reports)

    def _nothing(self, sums: Sums, shared: Shared, first, seats: Seats, rows, number: int, padding: Padding):
        """Returns the sum over no client: zeros of a buffer each."""
        if (number, padding) not in self._zeros:
            part = functools.partial(self._chunk, number=number, largest=padding.largest)
            shapes, _ = jax.eval_shape(part, shared, first, seats, rows, sums.reports)
            self._zeros[number, padding] = jax.jit(lambda: tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes))
        return self._zeros[number, padding]()

    def _chunk(self, shared: Shared, first, seats: Seats, rows: list[Any], reports, number: int, largest: int):
        """What a chunk of clients does in a phase: (what is summed, their Rows, [size, ...] of more than one)."""
        one = work(self._clients[number], self.algorithm.weighting, largest)
        # A client alone runs without vmap: batched products of batch size 1 are slow.
        alone = len(rows) == 1
        place = first if alone else first + jnp.arange(len(rows), dtype=jnp.int32)
        id, key = seats.ids[place], seats.keys[place]
        slot = jnp.where(id >= 0, place, len(seats.ids))
        row = rows[0] if alone else tree.map(lambda *leaves: jnp.stack(leaves), *rows)
        own = Own(id, place, slot, key, Row(row, key, tree.map(lambda leaf: leaf[place], reports)))
        if alone:
            return one(shared, own)
        summed, new = jax.vmap(one, (None, 0))(shared, own)
        return tree.map(lambda x: jnp.sum(x, 0), summed), new

    def _traced_train(self, sums: Sums, shared: Shared, first, seats: Seats, rows, *, number: int, padding: Padding):
        if number == min(self._clients):
            self.traces.append(padding)  # once per trace
        summed, new = self._chunk(shared, first, seats, rows, sums.reports, number, padding.largest)
        place = first if len(rows) == 1 else first + jnp.arange(len(rows), dtype=jnp.int32)
        reports = tree.map(lambda leaf, value: leaf.at[place].set(value), sums.reports, new.report)
        split = (
            [new.row] if len(rows) == 1 else [tree.map(lambda leaf, k=k: leaf[k], new.row) for k in range(len(rows))]
        )
        return Sums(tree.add(sums.total, summed), reports), split

    def _served(self, run: RunState, total, done: int) -> dict[str, Any]:
        """What the server makes of a cohort's sum, up to the next phase of clients: fields of RunState that change."""
        params, stats, state, phases = run.params, run.stats, run.state, self.algorithm.phases
        begun = done + 1
        if total is not None:
            message, mean_stats, _ = total
            stats = mean_stats.value if mean_stats else stats
            params, state = phases[done].server(params, state, message, run.round)
        while begun < len(phases) and phases[begun].client is None:
            params, state, stats = phases[begun].server(params, state, stats, run.round)
            begun += 1
        changed = total is not None or begun > done + 1
        return dict(params=params, stats=stats, state=state) if changed else {}

    def _traced_begin(self, run: RunState, total, *, done: int, number: int):
        changed = self._served(run, total, done)
        run = run._replace(**changed)
        return changed, self.algorithm.phases[number].broadcast(run.params, run.state)

    def _traced_end(self, run: RunState, total, *, done: int):
        changed = self._served(run, total, done)
        # As in engine.one_round: without the barrier, observers may be fused into training.
        run = run._replace(**jax.lax.optimization_barrier(changed))
        model = self.algorithm.eval_model(Variables(run.params, run.stats), run.state)
        seen = {name: self.observers[name].update(run.round, model, s) for name, s in run.observers.items()}
        return model.params, run._replace(observers=seen, round=run.round + 1)
