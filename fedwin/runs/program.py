"""Program: compiled functions and device data that all seeds of a run share, and their client tables."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from fedwin import engine, multi_process, tree
from fedwin.data.federation import Federation
from fedwin.engine import evaluate
from fedwin.engine.placement import AXIS, table_placement
from fedwin.engine.strategy import Strategy
from fedwin.residence.examples import ResidentExamples, TrainingExamples
from fedwin.residence.rings import OffloadedWindows
from fedwin.residence.rows import ClientTable, DeviceTable, InitialRows, OffloadedTable, init_rows, row_shapes
from fedwin.residence.saved import ROWS, ring_folder
from fedwin.residence.store import FileStore, MemoryStore, RecordLayout, RecordStore
from fedwin.runs.checkpoint import Checkpoints
from fedwin.runs.plan import RunPlan
from fedwin.runs.prepare import seed_keys
from fedwin.runs.schedule import Schedule
from fedwin.tree import PyTree

# Bytes of initial client rows that are computed at a time, if rows are in a file.
INITIAL_BYTES = 64 << 20


class Program:
    """The compiled functions of a run, and the data that its seeds share on the device.

    Args:
      test: examples for evaluation (engine.evaluate.held_out).
      may_stop: whether a callback may stop a seed at an evaluation, so that dispatches end there.

    Attributes:
      dispatch: the compiled loop over rounds.
      partitions_differ: whether clients hold different examples under different vmapped seeds.
      test: placed test batches.
    """

    def __init__(self, plan: RunPlan, test: dict[str, np.ndarray], may_stop: bool = False):
        self.plan, self.prepared, self.strategy, self.may_stop = plan, plan.prepared, plan.strategy, may_stop
        prepared, strategy, config = self.prepared, self.strategy, self.prepared.config
        probe = prepared.probe(strategy)
        parts, seen = (prepared.algorithm, prepared.observers, strategy, probe), prepared.changes.of_test
        self.partitions_differ = plan.num_vmapped > 1 and partitions_differ(prepared.federations)
        self.dispatch = engine.Dispatch(*parts, seen=seen)
        if plan.num_vmapped > 1:
            pools = (None, 0) if config.eval_val and self.partitions_differ else None
            differ = self.partitions_differ
            self.dispatch = engine.VmappedDispatch(*parts, None, seen, partitions_differ=differ, test_axes=pools)
        self.read_out = strategy.jit(lambda run: engine.read_out(prepared.algorithm, prepared.observers, run))
        self._probe = strategy.jit(lambda models, *test: probe(models, self.dispatch.seen(*test)))
        batches = evaluate.batches(test, config.eval_batch_size, strategy.num_devices)
        self.test = strategy.place(batches, _batch_sharding(strategy))
        self._examples = None

    def first_evaluation(self, run: engine.RunState, examples: PyTree) -> dict[str, dict[str, np.ndarray]]:
        """Evaluates the initial model on `evaluation_data`; returns read-out -> metric -> value."""
        return jax.device_get(self._probe(self.read_out(run), examples, run.round, run.key))

    def evaluation_data(self, seed: int) -> PyTree:
        """Returns the test batches; with --eval_val, (test batches, batches of the seed's validation examples)."""
        config, strategy = self.prepared.config, self.strategy
        if not config.eval_val:
            return self.test
        batches = evaluate.validation_batches(
            self.prepared.federations, seed, config.eval_batch_size, strategy.num_devices
        )
        return self.test, strategy.place(batches, _batch_sharding(strategy))

    def vmapped_evaluation_data(self, seeds: Sequence[int]) -> PyTree:
        """Returns the evaluation data of vmapped seeds; validation batches that differ are stacked [seeds, ...]."""
        if not (self.prepared.config.eval_val and self.partitions_differ):
            return self.evaluation_data(seeds[0])
        pools = [self.evaluation_data(seed)[1] for seed in seeds]
        return self.test, jax.tree.map(lambda *leaves: jnp.stack(leaves), *pools)

    def examples(self, seed: int) -> TrainingExamples:
        """Returns the training examples of a seed; those on the device are shared by all seeds."""
        examples = self.plan.examples(self.prepared.federations[seed], self._examples)
        if isinstance(examples, ResidentExamples):
            self._examples = examples.store.examples
        return examples

    def schedule(self, examples: TrainingExamples) -> Schedule:
        """Returns the run's schedule, with dispatches whose examples and windows fit on the device."""
        config = dataclasses.replace(self.prepared.config, rounds_per_dispatch=examples.rounds)
        return Schedule(config, self.plan.windows.rounds, self.may_stop)

    def with_table(self, seed: int, run: engine.RunState, slots: int) -> engine.RunState:
        """Returns a fresh state with initial rows of the first `slots` clients in its table, sharded as in training."""
        ids, key = jnp.arange(slots, dtype=jnp.int32), seed_keys(seed)["init"]
        make = functools.partial(init_rows, self.prepared.algorithm, run.params, ids, key)
        mesh = self.strategy.mesh
        whole = mesh is None or multi_process.count() > 1  # several processes create their own first
        return run._replace(table=make(shardings=None if whole else table_placement(jax.eval_shape(make), mesh)))

    def rows(self, seed: int, run: engine.RunState, slots: int, checkpoints: Checkpoints) -> ClientTable:
        """Returns the client table of a seed, which also manages windows that are offloaded from the device.

        Args:
          run: its state before the first round.
          slots: rows of the table in the state.
          checkpoints: checkpoints of the seed; process 0 puts files of rows and windows next to them.
        """
        clients, strategy = self.prepared.setting.num_clients, self.strategy

        def store(kind: str, folder: str, layout: RecordLayout, count: int) -> RecordStore:
            if not multi_process.is_first():
                return RecordStore(layout, count)
            if kind == "host":
                return MemoryStore(layout, count)
            return FileStore(checkpoints.directory / folder, layout, count, checkpoints.rounds)

        def place(values, shardings):
            return strategy.place(multi_process.broadcast_arrays(values), shardings)

        table: ClientTable = DeviceTable(clients)
        if self.plan.table != "device":
            algorithm, key = self.prepared.algorithm, seed_keys(seed)["init"]
            at_a_time = max(1, min(slots, INITIAL_BYTES // tree.nbytes(row_shapes(algorithm, run.params))))
            first = InitialRows(algorithm, run.params, key, at_a_time)
            own = store(self.plan.table, ROWS, first.layout, clients)
            table = OffloadedTable(own, first, clients, slots, place, strategy.placement)
        if self.plan.windows.rounds is None:
            return table
        ring_store = lambda name, *of: store(self.plan.windows.kind, ring_folder(name), *of)
        return OffloadedWindows(table, run, ring_store, place, strategy.placement)


def partitions_differ(federations: Mapping[int, Federation]) -> bool:
    """Returns whether clients hold different examples, or have other information about them, by seed."""

    def arrays(federation: Federation) -> list[np.ndarray]:
        parts = [part for part in (federation.partition, federation.validation) if part is not None]
        return [array for part in parts for array in (part.order, part.offset)] + list(federation.info.values())

    first, *others = map(arrays, federations.values())
    return any(not np.array_equal(a, b) for other in others for a, b in zip(first, other, strict=True))


def _batch_sharding(strategy: Strategy) -> jax.sharding.NamedSharding | None:
    if strategy.mesh is None:
        return None
    return jax.sharding.NamedSharding(strategy.mesh, jax.sharding.PartitionSpec(AXIS))
