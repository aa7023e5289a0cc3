"""A round as one program, for a cohort that is spread over devices: rows travel through a table of its own."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedwin import engine, tree
from fedwin.core import Algorithm, Observer, Variables
from fedwin.data.store import Store
from fedwin.engine.strategy import Strategy
from fedwin.fedjax_bridge.capacity import Padding
from fedwin.fedjax_bridge.rows import REPORTED, Row, Seats
from fedwin.models.convolution.program_cache import unkept
from fedwin.residence.client_table import row_shapes


class AtOnce:
    """Rounds on a mesh: engine.one_round on a table with a slot per place of the padded cohort.

    Args:
      algorithm: any, its table rows being Row.
      observers: name -> Observer.
      strategy: how a cohort is mapped.
      traces: gets the Padding of every compiled round.
      compiler_options: handed to jax.jit.
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
        round = jax.jit(self._traced, static_argnames="padding", compiler_options=compiler_options)
        self._round = unkept()(round)

    def __call__(self, run: engine.RunState, initial, seats: Seats, rows: list[Any], store: Store, padding: Padding):
        """Runs one round; arguments and results as those of OneByOne."""
        like = row_shapes(self.algorithm, initial)
        known = np.zeros(padding.clients, bool)
        known[: len(rows)] = [row is not None for row in rows]
        inputs = self.strategy.place((run, initial, stacked(rows, like, padding.clients), known, seats, store))
        params, run, table, reports = self._round(*inputs, padding=padding)
        table, reports = jax.device_get((table, reports))
        return params, run, [split(table, k) for k in range(len(rows))], reports

    def _traced(self, run: engine.RunState, initial, rows, known, seats: Seats, store, padding: Padding):
        """One round on a table with a slot per client: (model to evaluate, RunState, rows, report)."""
        self.traces.append(padding)  # once per trace
        ids = seats.ids
        fresh = jax.vmap(self.algorithm.client_init, (None, 0, None))(initial, jnp.maximum(ids, 0), jax.random.key(0))
        rows = jax.vmap(tree.where)(known, rows, fresh)
        table = Row(rows, seats.keys, {name: jnp.zeros(padding.clients) for name in REPORTED})
        place = jnp.arange(padding.clients, dtype=jnp.int32)
        slots = jnp.where(ids >= 0, place, padding.clients)
        one_round = functools.partial(engine.one_round, self.algorithm, self.observers, self.strategy, padding.largest)
        run, _ = one_round(run._replace(table=table), store, ids, place, slots)
        model = self.algorithm.eval_model(Variables(run.params, run.stats), run.state)
        return model.params, run._replace(table=()), run.table.row, run.table.report


def stacked(rows: list[Any], like, places: int):
    """Returns the rows of a cohort, [places, ...], zeros where a client has none yet.

    Args:
      rows: of its clients, None for one that has none; at most `places`.
      like: shapes of a row.
      places: clients that the cohort is padded to.
    """
    zero = tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), like)
    each = [zero if row is None else row for row in rows] + [zero] * (places - len(rows))
    return tree.map(lambda *leaves: np.stack(leaves), *each)


def split(rows, k: int):
    """Returns row k of stacked rows."""
    # A copy: a view of one row would keep the whole cohort's table alive.
    return tree.map(lambda leaf: np.array(leaf[k]), rows)
