"""Program: compiled functions and device data that all seeds of a run share, client tables, and starting states."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedwin import engine, multi_process, tree
from fedwin.data.dataset import Partition
from fedwin.data.federation import Federation
from fedwin.engine import evaluate
from fedwin.engine.placement import AXIS, table_placement
from fedwin.engine.strategy import Strategy
from fedwin.residence.examples import ResidentExamples, TrainingExamples, make_examples
from fedwin.residence.rings import OffloadedWindows, client_table_of
from fedwin.residence.rows import ClientTable, DeviceTable, InitialRows, OffloadedTable, init_rows, row_shapes
from fedwin.residence.saved import ROWS, has_all_clients, ring_folder
from fedwin.residence.store import FileStore, MemoryStore, RecordLayout, RecordStore
from fedwin.runs.checkpoint import Checkpoints, Extra, from_leaves, newest_checkpoint
from fedwin.runs.metrics_log import MetricsLog
from fedwin.runs.plan import RunPlan
from fedwin.runs.prepare import seed_keys
from fedwin.runs.schedule import Schedule
from fedwin.runs.start import fork_round, forked
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
        prepared, strategy = self.prepared, self.strategy
        dataset, config = prepared.dataset, prepared.config
        network, measure, validated = (prepared.model, prepared.normalize), evaluate.measure_of, None
        tested = [evaluate.make_probe(*network, measure(dataset, by_class=config.imbalance > 1), strategy)]
        if config.eval_val:
            validated = evaluate.make_probe(*network, measure(dataset, of="held out"), strategy)
        if (trigger := prepared.attack.trigger) is not None:
            tested.append(evaluate.make_attack_probe(*network, trigger, strategy))
        probe = evaluate.joined(tested, validated)
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
        config = self.prepared.config
        examples = make_examples(
            self.prepared.federations[seed],
            config.examples,
            self.strategy,
            self.prepared.setting.sampling.largest,
            config.rounds_per_dispatch,
            self._examples,
        )
        if isinstance(examples, ResidentExamples):
            self._examples = examples.store.examples
        return examples

    def schedule(self, examples: TrainingExamples) -> Schedule:
        """Returns the run's schedule, with dispatches whose examples and windows fit on the device."""
        return dataclasses.replace(self.plan.schedule(examples), ends_at_evaluations=self.may_stop)

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
          checkpoints: of the seed; process 0 puts files of rows and windows next to them.
        """
        table = self._client_table(seed, run, slots, checkpoints)
        if self.plan.windows.rounds is None:
            return table

        def place(ring, sharding):
            return self.strategy.place(multi_process.broadcast_arrays(ring), sharding)

        def store(name: str, layout: RecordLayout, slots: int) -> RecordStore:
            if self.plan.windows.kind == "host":
                return MemoryStore(layout, slots)
            return FileStore(checkpoints.directory / ring_folder(name), layout, slots, checkpoints.rounds)

        own = store if multi_process.is_first() else None
        return OffloadedWindows(table, run, own, place, self.strategy.placement)

    def _client_table(self, seed: int, run: engine.RunState, slots: int, checkpoints: Checkpoints) -> ClientTable:
        clients, strategy = self.prepared.setting.num_clients, self.strategy
        algorithm, key = self.prepared.algorithm, seed_keys(seed)["init"]
        if self.plan.table == "device":
            return DeviceTable(clients)

        def place(table, run):
            table = multi_process.broadcast_arrays(table)
            return strategy.place(table, None if strategy.mesh is None else strategy.placement(run).table)

        row = row_shapes(algorithm, run.params)
        at_a_time = max(1, min(slots, INITIAL_BYTES // tree.nbytes(row)))
        first = InitialRows(algorithm, run.params, key, at_a_time)
        store: RecordStore | None = None
        if multi_process.is_first() and self.plan.table == "host":
            store = MemoryStore(first.layout, clients)
        elif multi_process.is_first():
            store = FileStore(checkpoints.directory / ROWS, first.layout, clients, checkpoints.rounds)
        return OffloadedTable(store, first, clients, slots, place)


def partitions_differ(federations: Mapping[int, Federation]) -> bool:
    """Returns whether clients hold different examples, or have other information about them, by seed."""
    first, *others = federations.values()
    return any(
        _differ(first.partition, other.partition)
        or _differ(first.validation, other.validation)
        or any(not np.array_equal(leaf, other.info[name]) for name, leaf in first.info.items())
        for other in others
    )


def _differ(a: Partition | None, b: Partition | None) -> bool:
    if a is None or b is None:
        return a is not b
    return not (np.array_equal(a.order, b.order) and np.array_equal(a.offset, b.offset))


def _batch_sharding(strategy: Strategy) -> jax.sharding.NamedSharding | None:
    if strategy.mesh is None:
        return None
    return jax.sharding.NamedSharding(strategy.mesh, jax.sharding.PartitionSpec(AXIS))


class StartingState(NamedTuple):
    """A state to train from.

    Attributes:
      run: the state, not placed on devices.
      extra: JSON data of the checkpoint that it was restored from, or the counts that a fork continues; {} of a fresh
        state, which every process computes from the seed.
      resumed: whether it was restored from a checkpoint of this run.
    """

    run: engine.RunState
    extra: Extra
    resumed: bool = False


def starting_state(
    program: Program,
    seed: int,
    rows: ClientTable,
    checkpoints: Checkpoints,
    metrics_log: MetricsLog | None,
    fresh: engine.RunState,
    say: Callable[[str], None],
) -> StartingState:
    """Returns the state that a seed starts from, the same in all processes; removes evaluations of later rounds.

    Args:
      metrics_log: file of evaluations; None in a process that does not write.
      fresh: its state before the first round; one row of its table is enough.

    Raises:
      UserError: there are checkpoints and none can be used, or --fork_from does not fit.
    """
    if multi_process.count() > 1:
        fresh = _with_all_slots(program, seed, rows, fresh)
    start = multi_process.run_on_all(lambda: _local_start(program, seed, rows, checkpoints, metrics_log, fresh, say))
    if multi_process.count() == 1:
        return start
    extra, resumed = multi_process.broadcast_object(start[1:])
    if not extra:
        return start
    # Rows that are not on the devices stay in process 0.
    with_rows = isinstance(client_table_of(rows), DeviceTable)
    run = multi_process.broadcast_arrays(start.run if with_rows else start.run._replace(table=()))
    return StartingState(run if with_rows else run._replace(table=fresh.table), extra, resumed)


def _with_all_slots(program: Program, seed: int, rows: ClientTable, fresh: engine.RunState) -> engine.RunState:
    """Returns a fresh state whose table has as many rows as in a dispatch."""
    lengths = [len(leaf) for leaf in jax.tree.leaves(fresh.table)]
    return fresh if lengths[:1] in ([], [rows.slots]) else program.with_table(seed, fresh, rows.slots)


def _local_start(
    program: Program,
    seed: int,
    rows: ClientTable,
    checkpoints: Checkpoints,
    metrics_log: MetricsLog | None,
    fresh: engine.RunState,
    say: Callable[[str], None],
) -> StartingState:
    """Returns the state that this process would start from; see `starting_state`."""
    prepared, config = program.prepared, program.prepared.config
    if metrics_log is None:
        return StartingState(fresh, {})
    saved = newest_checkpoint(checkpoints, prepared.schedule, metrics_log.lines(seed), [seed], fork_round(config))
    if saved is not None:
        leaves, extra = saved
        if not has_all_clients(leaves, rows.num_clients):
            fresh = _with_all_slots(program, seed, rows, fresh)
        run = rows.restore(from_leaves(leaves, rows.template(fresh, leaves)), fresh)
        start = StartingState(run, extra, resumed=True)
        if int(run.round) < config.num_rounds and extra["stopped_at"] is None:
            say(f"seed {seed}: resuming after round {int(run.round)}")
    elif config.fork_from:
        start = StartingState(*forked(config, seed, fresh, rows, prepared.start, say))
    else:
        start = StartingState(_with_all_slots(program, seed, rows, fresh), {})
        if prepared.initial:
            say(f"seed {seed}: starts with {prepared.initial[seed]}")
    metrics_log.truncate_after(seed, int(start.run.round) if saved is not None else -1)
    return start
