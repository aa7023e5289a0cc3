"""Dry runs: what a run needs (memory, disk, time), measured on a few rounds; its read-outs. Nothing is written."""

import contextlib
import pathlib
import tempfile
import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np

from fedwin import engine, tree
from fedwin.data import Dataset
from fedwin.engine.communication import Bytes
from fedwin.engine.evaluate import held_out
from fedwin.engine.strategy import Strategy
from fedwin.errors import UserError
from fedwin.models import Model
from fedwin.registry import checks
from fedwin.residence.examples import TrainingExamples
from fedwin.runs import strategy_choice
from fedwin.runs.checkpoint import Checkpoints
from fedwin.runs.client_evaluations import ClientEvaluations, sampled
from fedwin.runs.config import Config
from fedwin.runs.multi_seed import VmappedInputs, seed_state
from fedwin.runs.prepare import PreparedRun, prepare
from fedwin.runs.program import Program
from fedwin.runs.progress import compile_seconds
from fedwin.runs.resources import (
    Estimate,
    Memory,
    available,
    estimate,
    free_disk,
    participants,
    table_slots,
    window_plan,
)
from fedwin.runs.run import CheckedRun, prepare_and_check
from fedwin.runs.schedule import CohortSource, Schedule
from fedwin.runs.seed_groups import seed_groups
from fedwin.runs.train import Driver, Parts

# Default limits of timing; the first round compiles, however long that takes, and is not counted.
ROUNDS, SECONDS = 20, 20.0
# Clients of each kind on which the evaluation of clients is timed.
TIMED_CLIENTS = 100


class Timing(NamedTuple):
    """The duration of a run's parts on this machine; checkpoints, which are few, are not counted.

    Attributes:
      seconds_per_round: training of one seed; of vmapped seeds, the share of one.
      compile_seconds: before the first round: compilation, and placing of examples.
      seconds_per_evaluation: evaluation of all read-outs of one seed.
      seconds_per_client_evaluation: their evaluation on each client's own examples (--eval_clients).
    """

    seconds_per_round: float
    compile_seconds: float
    seconds_per_evaluation: float
    seconds_per_client_evaluation: float = 0.0

    def expected(self, schedule: Schedule, completed: list[int]) -> float:
        """Returns the seconds that remain.

        Args:
          schedule: of the run.
          completed: completed rounds of each seed.
        """
        if all(done >= schedule.num_rounds for done in completed):
            return 0.0
        rounds = sum(max(schedule.num_rounds - done, 0) for done in completed)
        evaluations = sum(schedule.evaluations(done) for done in completed)
        of_clients = sum(schedule.client_evaluations(done) for done in completed)
        return (
            self.compile_seconds
            + rounds * self.seconds_per_round
            + evaluations * self.seconds_per_evaluation
            + of_clients * self.seconds_per_client_evaluation
        )


class DiskUse(NamedTuple):
    """Bytes on disk that a run needs.

    Attributes:
      parts: part -> bytes.
      free: free bytes where it would be written.
    """

    parts: dict[str, int]
    free: int

    def check(self) -> None:
        """Raises UserError unless everything fits on the disk."""
        needed = sum(self.parts.values())
        if needed > self.free:
            largest = max(self.parts, key=lambda part: self.parts[part])
            remedy = REMEDIES.get(largest, "lower --keep_checkpoints")
            raise UserError(
                f"{largest}: {self.parts[largest] / GB:,.1f} GB of the {needed / GB:,.1f} GB on disk that this run "
                f"needs, and {self.free / GB:,.1f} GB are free; {remedy}, or choose another --out_dir."
            )


class Requirements(NamedTuple):
    """What a run needs.

    Attributes:
      checked: the run.
      strategy: how cohorts would be executed.
      memory: bytes by part, including activations.
      available: memory that was available before anything was allocated.
      disk: disk use.
      timing: duration of its rounds.
    """

    checked: CheckedRun
    strategy: Strategy
    memory: Estimate
    available: Memory
    disk: DiskUse
    timing: Timing


def measure_requirements(
    config: Config,
    *,
    rounds: int = ROUNDS,
    seconds: float = SECONDS,
    dataset: Dataset | None = None,
    model: Model | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Requirements:
    """Compiles a dispatch of a run, compares its requirements with the machine, and times a few rounds if it fits.

    Args:
      config: the run.
      rounds: maximum number of rounds to time.
      seconds: no further round is timed after this.
      dataset: an object in place of the data set that the config names.
      model: an object in place of the model that the config names.
      say: prints a line.

    Raises:
      UserError: `fedwin.run` would reject the run, or it does not fit.
    """
    checked = prepare_and_check(config, dataset, model)
    prepared = checked.prepared
    strategy = strategy_choice.choose_strategy(prepared.config, prepared, checked.config_file, say)
    memory_available, disk = available(), disk_use(prepared, strategy, checked.directory)
    disk.check()
    memory = estimate(prepared, strategy)

    def check_memory(program: Program, examples: TrainingExamples) -> None:
        nonlocal memory
        memory = memory.with_activations(activation_bytes(program, examples))
        memory.check(memory_available)

    timing = _time_prepared(prepared, strategy, checked.bytes_per_client, rounds, seconds, check_memory)
    return Requirements(checked, strategy, memory, memory_available, disk, timing)


def measure_timing(
    config: Config,
    *,
    rounds: int = ROUNDS,
    seconds: float = SECONDS,
    dataset: Dataset | None = None,
    model: Model | None = None,
) -> Timing:
    """Times a few rounds of a run on this machine; writes nothing.

    Args:
      config: the run.
      rounds: maximum number of rounds to time.
      seconds: no further round is timed after this; two always are.
      dataset: an object in place of the data set that the config names.
      model: an object in place of the model that the config names.

    Raises:
      UserError: `fedwin.run` would reject the run, or a limit is invalid.
    """
    checks.integer("measure_timing", rounds=rounds)
    checks.number("measure_timing", 0, open_least=True, seconds=seconds)
    checked = prepare_and_check(config, dataset, model)
    prepared = checked.prepared
    strategy = strategy_choice.choose_strategy(prepared.config, prepared, checked.config_file, lambda line: None)
    return _time_prepared(prepared, strategy, checked.bytes_per_client, rounds, seconds)


def _time_prepared(
    prepared: PreparedRun,
    strategy: Strategy,
    bytes_per_client: Bytes,
    rounds: int,
    seconds: float,
    check: Callable[[Program, TrainingExamples], None] = lambda program, examples: None,
) -> Timing:
    """Times a prepared run; calls `check` with the program and the first seed's examples before a state exists."""
    started = time.monotonic()
    program = Program(prepared, strategy, held_out(prepared.dataset, prepared.config.eval_examples), bytes_per_client)
    with (
        contextlib.closing(program.examples(prepared.config.seeds[0])) as examples,
        tempfile.TemporaryDirectory() as scratch,  # for rows that are in a file
    ):
        check(program, examples)
        with contextlib.closing(TimedRun(program, examples, Checkpoints(scratch))) as timed:
            return _measure(timed, started, rounds, seconds)


def _measure(run: "TimedRun", created: float, rounds: int, seconds: float) -> Timing:
    """Times rounds of a run that has been built since time `created`."""
    run.time_dispatch(1)
    started, run.compiling = time.monotonic(), 0.0
    timed, elapsed = run.time_dispatch(1)
    before = max(started - created - elapsed, 0.0)
    evaluated, with_evaluation = run.time_dispatch(1, evaluated=True)
    while timed + 1 < rounds and time.monotonic() - started < seconds:
        affordable = (seconds - (time.monotonic() - started)) * timed / max(elapsed, 1e-9)
        more, took = run.time_dispatch(max(1, min(rounds - timed - 1, int(affordable))))
        timed, elapsed = timed + more, elapsed + took
    per_round = elapsed / timed / run.seeds
    per_evaluation = max(with_evaluation / run.seeds - evaluated * per_round, 0.0)
    of_clients = run.time_client_evaluation()
    # Clients of other sizes may have needed another program.
    return Timing(per_round, before + run.compiling, per_evaluation, of_clients)


class TimedRun:
    """A run whose dispatches are timed one after another; results are discarded.

    Args:
      program: the compiled program.
      examples: training examples of the first seed.
      checkpoints: of a temporary directory, which rows in a file need.

    Attributes:
      seeds: number of seeds that train at the same time.
      compiling: seconds of compilation in dispatches so far.
    """

    def __init__(self, program: Program, examples: TrainingExamples, checkpoints: Checkpoints):
        prepared, strategy = program.prepared, program.strategy
        seed = prepared.config.seeds[0]
        schedule = program.schedule(examples)
        slots, kind = program.slots(schedule.longest)
        run = prepared.start(seed, 1, window_rounds=schedule.window_rounds)
        self.rows = program.rows(seed, run, slots, kind, checkpoints)
        run = program.with_table(seed, run, slots)
        run = strategy.place(run, strategy.placement(run))
        cohorts: CohortSource = prepared.cohorts(seed, schedule, strategy)
        test = program.evaluation_data(seed)
        program.first_evaluation(run, test)  # compiles a separate program
        if program.num_vmapped > 1:
            inputs = VmappedInputs(program, seed_groups(prepared.config)[0])
            examples, cohorts, test = inputs.examples, inputs.cohorts, inputs.test
            run = inputs.broadcast_state(run)
        self.seeds, self.compiling, self._completed = program.num_vmapped, 0.0, 0
        self._driver = Driver(run, Parts(program.dispatch, test, examples, self.rows, cohorts))
        self.program = program

    def time_dispatch(self, most: int, evaluated: bool = False) -> tuple[int, float]:
        """Runs a dispatch.

        Args:
          most: maximum number of its rounds.
          evaluated: whether the model after its last round is evaluated.

        Returns:
          Its rounds, and its seconds without compilation, which is added to `compiling`.
        """
        schedule = self._driver.parts.cohorts.schedule
        first = self._completed % schedule.num_rounds  # short runs start again
        end = schedule.dispatch_end(first, most)
        self._driver.load(first, end, lambda completed: evaluated and completed == end)
        outcome = self._driver.execute()
        self._completed += end - first
        self.compiling += outcome.compiling
        return end - first, max(outcome.seconds - outcome.compiling, 0.0)

    def time_client_evaluation(self) -> float:
        """Returns the seconds of an evaluation of one seed on each client's own examples, extrapolated from a sample.

        Its compilation is added to `compiling`.
        """
        prepared, run = self.program.prepared, self._driver.run
        if not prepared.evaluated:
            return 0.0
        seed = prepared.config.seeds[0]
        few = {name: sampled(clients, TIMED_CLIENTS) for name, clients in prepared.evaluated[seed].items()}
        evaluations = ClientEvaluations(self.program, prepared.evaluated | {seed: few})
        run = run if self.seeds == 1 else seed_state(run, 0)
        with evaluations.of(seed) as evaluate:
            compiled = compile_seconds()
            evaluate(run)
            self.compiling += compile_seconds() - compiled
            started = time.monotonic()
            evaluate(run)
        count = lambda found: sum(len(clients.ids) for clients in found.values())
        return (time.monotonic() - started) * count(prepared.evaluated[seed]) / count(few)

    def close(self) -> None:
        """Closes the client table."""
        self.rows.close()


GB = 1e9


# Names of the parts for client rows and windows in files; flags that make them smaller.
ROWS, WINDOWS = "rows in files", "windows in files"
REMEDIES = {ROWS: "lower --clients_per_round or --num_rounds", WINDOWS: "shorten the windows"}


def disk_use(prepared: PreparedRun, strategy: Strategy, directory: pathlib.Path) -> DiskUse:
    """Returns the disk use of the checkpoints, client rows and windows of all seeds.

    Args:
      prepared: the prepared run.
      strategy: pads cohorts.
      directory: the run's directory.
    """
    config = prepared.config
    windows = window_plan(prepared, config.rounds_per_dispatch)
    window_rounds = windows.rounds if windows.kind == "file" else None
    run = jax.eval_shape(lambda: prepared.start(config.seeds[0], 1, window_rounds=window_rounds))
    row, clients = tree.nbytes(run.table), participants(prepared)
    _, kind = table_slots(prepared, strategy, config.rounds_per_dispatch)
    rows_inside = {"device": prepared.setting.num_clients, "host": clients, "file": 0}[kind]
    interval = config.checkpoint_every or config.num_rounds
    written = 2 + (config.num_rounds - 1) // interval
    kept = min(max(config.keep_checkpoints, 1) + len(config.keep_rounds), written)
    checkpoint = tree.nbytes(run._replace(key=(), table=())) + row * rows_inside
    parts = {f"{kept * len(config.seeds)} checkpoints": kept * len(config.seeds) * checkpoint}
    if kind == "file":
        # Changing a row does not overwrite the version that a checkpoint needs.
        changed = min(interval * prepared.setting.sampling.largest, clients)
        parts[ROWS] = len(config.seeds) * row * (clients + kept * changed)
    if windows.disk_bytes:
        parts[WINDOWS] = len(config.seeds) * windows.disk_bytes
    return DiskUse(parts, free_disk(directory))


def activation_bytes(program: Program, examples: TrainingExamples) -> int:
    """Returns the bytes that a compiled dispatch needs on one device besides its arguments, as reported by XLA.

    Args:
      program: the compiled program.
      examples: training examples of the first seed.
    """
    prepared, strategy = program.prepared, program.strategy
    seed = prepared.config.seeds[0]
    schedule = program.schedule(examples)
    slots, _ = program.slots(schedule.longest)
    run = jax.eval_shape(lambda: prepared.start(seed, slots, window_rounds=schedule.window_rounds))
    if strategy.mesh is not None:
        placed = lambda leaf, where: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where)
        run = jax.tree.map(placed, run, strategy.placement(run))
    drawn: CohortSource = prepared.cohorts(seed, schedule, strategy)
    test = program.evaluation_data(seed)
    if program.num_vmapped > 1:
        inputs = VmappedInputs(program, seed_groups(prepared.config)[0])
        run, examples, drawn = jax.eval_shape(inputs.broadcast_state, run), inputs.examples, inputs.cohorts
        test = inputs.test
    cohorts, n_max = drawn.cohorts(0, 1)
    store, rows = examples.load(cohorts)
    cohorts = cohorts._replace(rows=rows)
    compiled = program.dispatch.compiled(run, store, cohorts, test, 1, np.zeros(len(rows), bool), n_max)
    return compiled.memory_analysis().temp_size_in_bytes


def readout_names(config: Config) -> list[str]:
    """Returns the names of a run's read-outs, sorted: 'model', 'wima50' ...; computes nothing.

    Args:
      config: the run.

    Raises:
      UserError: the config is invalid.
    """
    prepared = prepare(config)

    def read():
        return engine.read_out(prepared.algorithm, prepared.observers, prepared.start(config.seeds[0], 1))

    return sorted(jax.eval_shape(read))
