"""A round as small programs, a chunk of clients each: no client is padded, and rows go straight in and out."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedwin import tree
from fedwin.core import Algorithm, Observer, Variables
from fedwin.data.store import Store
from fedwin.engine import RunState
from fedwin.engine.cohort import Own, Shared, work
from fedwin.fedjax_bridge.capacity import Padding
from fedwin.fedjax_bridge.rows import REPORTED, Result, Row, Seat


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
        compiled = lambda function, **more: jax.jit(function, compiler_options=compiler_options, **more)
        self._first_row = compiled(lambda initial, id: algorithm.client_init(initial, id, jax.random.key(0)))
        self._begin = compiled(self._traced_begin, static_argnames=("done", "number"))
        # Only the running sum is given away: states, and with them rows, stay valid.
        self._train = compiled(self._traced_train, static_argnames=("number", "padding"), donate_argnums=0)
        self._end = compiled(self._traced_end, static_argnames="done")

    def __call__(self, run: RunState, initial, seats: list[Seat], store: Store, padding: Padding):
        """Runs one round: (model to evaluate, RunState, the clients' Results).

        Args:
          run: the state without a table.
          initial: what new rows are made from.
          seats: the cohort.
          store: its examples, padded.
          padding: what they are padded to.
        """
        store = jax.device_put(store)
        nothing = dict.fromkeys(REPORTED, np.zeros((), np.float32))
        rows = [self._first_row(initial, seat.id) if seat.row is None else seat.row for seat in seats]
        results = [Result(row, nothing) for row in rows]
        done, total = -1, None
        for number in self._clients:
            begun, down = self._begin(run, total, done=done, number=number)
            run = run._replace(**begun)
            shared = Shared(down, run.stats, run.round, store)
            done, total = number, None
            size = self.chunk or padding.clients
            for first in range(0, len(seats), size):
                some = slice(first, first + size)
                chunk = chunk_of(seats[some], results[some], first, size, padding.clients)
                if total is None:
                    total = self._nothing(shared, chunk, number, padding)
                total, trained = self._train(total, shared, chunk, number=number, padding=padding)
                results[some] = trained[: len(seats[some])]
        params, run = self._end(run, total, done=done)
        return params, run, results

    def _nothing(self, shared: Shared, chunk: list[Own], number: int, padding: Padding):
        """Returns the sum over no client: zeros of a buffer each."""
        if (number, padding) not in self._zeros:
            part = functools.partial(self._chunk, number=number, largest=padding.largest)
            shapes, _ = jax.eval_shape(part, shared, chunk)
            self._zeros[number, padding] = jax.jit(lambda: tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes))
        return self._zeros[number, padding]()

    def _chunk(self, shared: Shared, chunk: list[Own], number: int, largest: int):
        """What a chunk of clients does in a phase: (what is summed, their rows)."""
        one = work(self._clients[number], self.algorithm.weighting, largest)
        if len(chunk) == 1:  # without vmap: batched products of batch size 1 are slow
            summed, row = one(shared, chunk[0])
            return summed, [row]
        summed, rows = jax.vmap(one, (None, 0))(shared, tree.map(lambda *leaves: jnp.stack(leaves), *chunk))
        summed = tree.map(lambda x: jnp.sum(x, 0), summed)
        return summed, [tree.map(lambda leaf, k=k: leaf[k], rows) for k in range(len(chunk))]

    def _traced_train(self, total, shared: Shared, chunk: list[Own], *, number: int, padding: Padding):
        if number == min(self._clients):
            self.traces.append(padding)  # once per trace
        summed, rows = self._chunk(shared, chunk, number, padding.largest)
        return tree.add(total, summed), [Result(row.row, row.report) for row in rows]

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


def chunk_of(seats: list[Seat], results: list[Result], first: int, size: int, beyond: int) -> list[Own]:
    """Returns what the clients of a chunk are handed, `size` of them; who is missing is the first one with id -1.

    Args:
      seats: the clients.
      results: of the phase before.
      first: their first row of the store.
      size: clients per chunk.
      beyond: a slot that does not exist.
    """
    number = lambda value: np.asarray(value, np.int32)
    chunk = []
    for k in range(size):
        there = k < len(seats)
        seat, (row, report) = (seats[k], results[k]) if there else (seats[0], results[0])
        place = number(first + k if there else first)
        slot = place if there else number(beyond)
        chunk.append(Own(number(seat.id if there else -1), place, slot, seat.key, Row(row, seat.key, report)))
    return chunk
