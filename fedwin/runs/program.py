"""The compiled part of a run, shared by its seeds."""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from fedwin import engine, multi_process, tree
from fedwin.engine import evaluate, validation
from fedwin.engine.communication import Bytes
from fedwin.engine.placement import AXIS
from fedwin.engine.strategy import Strategy
from fedwin.residence.client_table import DeviceRows, FirstRows, HostRows, LentRows, init_rows, row_shapes
from fedwin.residence.client_table_file import FileRows
from fedwin.residence.examples import Resident, examples_of
from fedwin.residence.offloaded_windows import Outside, RingMemory, layout_of_ring
from fedwin.residence.record_store import RowFile, layout_of
from fedwin.runs.checkpoint import Checkpoints
from fedwin.runs.checkpoint_format import ROWS, folder_of
from fedwin.runs.prepare import PreparedRun, seed_keys
from fedwin.runs.resources import WindowPlan, table_slots, window_plan
from fedwin.runs.schedule import Schedule
from fedwin.runs.seed_groups import group_size, partitions_differ

# First rows that are made at a time, where rows live in a file.
FIRST_BYTES = 64 << 20


class Program:
    """What is compiled once and serves all seeds, and what they share on the device.

    Args:
      prepared: the prepared run.
      strategy: how cohorts are mapped.
      test: what evaluation is done on (engine.evaluate.held_out).
      bytes_per_client: what a client receives and sends in a round.

    Attributes:
      dispatch: the loop over rounds.
      lanes: seeds that it trains at once.
      apart: whether they differ in who holds which examples.
      test: placed test batches.
    """

    def __init__(self, prepared: PreparedRun, strategy: Strategy, test: dict[str, Any], bytes_per_client: Bytes):
        self.prepared, self.strategy, self.bytes_per_client = prepared, strategy, bytes_per_client
        dataset, config = prepared.dataset, prepared.config
        if config.eval_val:
            probe = validation.make_probe(prepared.model, prepared.normalise, dataset, strategy)
        else:
            probe = evaluate.make_probe(prepared.model, prepared.normalise, evaluate.measure_of(dataset), strategy)
        parts = (prepared.algorithm, prepared.observers, strategy, probe)
        self.lanes = group_size(config)
        self.apart = self.lanes > 1 and partitions_differ(prepared.federations)
        self.dispatch = engine.Dispatch(*parts)
        if self.lanes > 1:
            pools = (None, 0) if config.eval_val and self.apart else None
            self.dispatch = engine.VmappedDispatch(*parts, apart=self.apart, test_axes=pools)
        self._read_out = strategy.jit(lambda run: engine.read_out(prepared.algorithm, prepared.observers, run))
        self._probe = strategy.jit(probe)
        batches = evaluate.batches(test, config.eval_batch_size, strategy.num_devices)
        self.test = strategy.place(batches, _batch_sharding(strategy))
        self._examples = None

    def first_evaluation(self, run: engine.RunState, examples):
        """Evaluates the model that a fresh run begins with: read-out -> metric -> value.

        Args:
          run: its state.
          examples: what `evaluated_on` returns.
        """
        return jax.device_get(self._probe(self._read_out(run), examples))

    def evaluated_on(self, seed: int):
        """Returns what a seed is evaluated on: the test batches, and with --eval_val its pool of held-out examples."""
        config, strategy = self.prepared.config, self.strategy
        if not config.eval_val:
            return self.test
        batches = validation.pool(self.prepared.federations, seed, config.eval_batch_size, strategy.num_devices)
        return self.test, strategy.place(batches, _batch_sharding(strategy))

    def evaluated_in_lanes(self, seeds: Sequence[int]):
        """Returns what the seeds of all lanes are evaluated on; of pools that differ there is one for each lane."""
        if not (self.prepared.config.eval_val and self.apart):
            return self.evaluated_on(seeds[0])
        pools = [self.evaluated_on(seed)[1] for seed in seeds]
        return self.test, jax.tree.map(lambda *leaves: jnp.stack(leaves), *pools)

    def examples(self, seed: int):
        """Returns the residence of a seed's examples; those on the device are shared by all seeds."""
        config = self.prepared.config
        found = examples_of(
            self.prepared.federations[seed],
            config.examples,
            self.strategy,
            config.clients_per_round,
            config.rounds_per_dispatch,
            self._examples,
        )
        if isinstance(found, Resident):
            self._examples = found.store.examples
        return found

    @functools.cached_property
    def windows(self) -> WindowPlan:
        """Where windows live."""
        return window_plan(self.prepared, self.prepared.config.rounds_per_dispatch)

    def schedule(self, examples) -> Schedule:
        """Returns the schedule with dispatches for which the device has room; `examples` is their residence."""
        return self.prepared.schedule.with_dispatches_of(examples.rounds).with_windows_of(self.windows.rounds)

    def slots(self, rounds: int) -> tuple[int, str]:
        """Returns the rows of the client table in the state, and where all rows live: 'device', 'host' or 'file'.

        Args:
          rounds: the most rounds that a dispatch holds.
        """
        return table_slots(self.prepared, self.strategy, rounds)

    def with_table(self, seed: int, run: engine.RunState, slots: int) -> engine.RunState:
        """Returns a seed's fresh state with the first rows of so many clients, made on the devices that hold them."""
        ids, key = jnp.arange(slots, dtype=jnp.int32), seed_keys(seed)["init"]
        make = functools.partial(init_rows, self.prepared.algorithm, run.params, ids, key)
        return run._replace(table=make(shardings=self.strategy.table_placement(jax.eval_shape(make))))

    def rows(self, seed: int, run: engine.RunState, slots: int, kind: str, checkpoints: Checkpoints):
        """Returns the residence of a seed's client rows, and of its windows where they are not on the device.

        Args:
          seed: whose rows.
          run: its state before the first round.
          slots: rows of the table in the state.
          kind: where all rows live: 'device', 'host' or 'file'.
          checkpoints: the seed's; files are beside them. Of several processes the first one's only.
        """
        rows = self._rows(seed, run, slots, kind, checkpoints)
        if self.windows.rounds is None:
            return rows

        def place(ring, sharding):
            return self.strategy.place(multi_process.from_first(ring), sharding)

        def store(name, ring):
            if not multi_process.is_first():
                return None
            if self.windows.kind == "host":
                return RingMemory(*ring.shape, ring.dtype)
            layout = layout_of_ring(ring.shape[1], ring.dtype)
            return RowFile(checkpoints.directory / folder_of(f"{name}.ring"), layout, ring.slots, checkpoints.rounds)

        return Outside(rows, run, store, place, self.strategy.placement)

    def _rows(self, seed: int, run: engine.RunState, slots: int, kind: str, checkpoints: Checkpoints):
        clients, strategy = self.prepared.setting.num_clients, self.strategy
        algorithm, key = self.prepared.algorithm, seed_keys(seed)["init"]
        if kind == "device":
            return DeviceRows(clients)

        def place(table, run):
            table = multi_process.from_first(table)
            return strategy.place(table, None if strategy.mesh is None else strategy.placement(run).table)

        if not multi_process.is_first():
            return LentRows(row_shapes(algorithm, run.params), slots, place)
        if kind == "host":
            return HostRows(algorithm, run.params, clients, slots, key, place)
        row = row_shapes(algorithm, run.params)
        together = max(1, min(slots, FIRST_BYTES // tree.nbytes(row)))
        first = FirstRows(algorithm, run.params, key, together)
        store = RowFile(checkpoints.directory / ROWS, layout_of(row), clients, checkpoints.rounds)
        return FileRows(store, first, clients, slots, place)


def _batch_sharding(strategy: Strategy):
    if strategy.mesh is None:
        return None
    return jax.sharding.NamedSharding(strategy.mesh, jax.sharding.PartitionSpec(AXIS))
