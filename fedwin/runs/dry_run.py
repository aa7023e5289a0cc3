"""The names of what a run reads out."""

import contextlib
import pathlib
import tempfile
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from fedwin import engine, tree
from fedwin.data import Dataset
from fedwin.engine.communication import Bytes
from fedwin.engine.evaluate import held_out
from fedwin.engine.strategy import Strategy
from fedwin.errors import UserError
from fedwin.registry import checks
from fedwin.runs import strategy_choice
from fedwin.runs.checkpoint import Checkpoints
from fedwin.runs.config import Config
from fedwin.runs.multi_seed import VmappedInputs
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
from fedwin.runs.run import Checked, checked
from fedwin.runs.schedule import CohortSchedule, Schedule
from fedwin.runs.seed_groups import seed_groups


def readout_names(config: Config) -> list[str]:
    """Returns the names under which a run's models are evaluated, sorted: 'model', 'wima50' ...; computes nothing.

    Args:
      config: what would be run.

    Raises:
      UserError: anything wrong in it.
    """
    prepared = prepare(config)

    def read():
        return engine.read_out(prepared.algorithm, prepared.observers, prepared.start(config.seeds[0], 1))

    return sorted(jax.eval_shape(read))


# What is timed by default, at most; one round before it compiles, however long that takes.
ROUNDS, SECONDS = 20, 20.0


class Pace(NamedTuple):
    """What a run takes on this machine; checkpoints, which are few, are not counted.

    Attributes:
      seconds_per_round: of training one seed; of several at once, its share.
      compile_seconds: before the first round: compilation, placing of examples.
      seconds_per_evaluation: of all read-outs, as well.
    """

    seconds_per_round: float
    compile_seconds: float
    seconds_per_evaluation: float

    def expected(self, schedule: Schedule, completed: list[int]) -> float:
        """Returns the seconds that are left to run.

        Args:
          schedule: of the run.
          completed: rounds that are done, for each seed.
        """
        if all(done >= schedule.num_rounds for done in completed):
            return 0.0
        rounds = sum(max(schedule.num_rounds - done, 0) for done in completed)
        evaluations = sum(schedule.evaluations(done) for done in completed)
        return self.compile_seconds + rounds * self.seconds_per_round + evaluations * self.seconds_per_evaluation


class _Laps:
    """Rounds of a run, timed one dispatch after the other; what they compute is forgotten."""

    def __init__(self, program: Program, examples, checkpoints: Checkpoints):
        prepared, strategy = program.prepared, program.strategy
        seed = prepared.config.seeds[0]
        schedule = program.schedule(examples)
        slots, kind = program.slots(schedule.longest)
        run = prepared.start(seed, 1, window_rounds=schedule.window_rounds)
        self.rows = program.rows(seed, run, slots, kind, checkpoints)
        run = program.with_table(seed, run, slots)
        self.run = strategy.place(run, strategy.placement(run))
        self.program, self.examples = program, examples
        self.cohorts: Any = CohortSchedule(prepared.federations[seed], schedule, strategy, seed)
        self.completed, self.compiling, self.seeds = 0, 0.0, 1
        self.evaluated_on = program.evaluated_on(seed)
        program.first_evaluation(self.run, self.evaluated_on)  # a program of its own
        if program.lanes > 1:
            working = VmappedInputs(program, seed_groups(prepared.config)[0])
            self.examples, self.cohorts, self.evaluated_on = working.examples, working.cohorts, working.evaluated_on
            self.run, self.seeds = working.broadcast_state(self.run), program.lanes

    def lap(self, wish: int, evaluated: bool = False) -> tuple[int, float]:
        """Runs a dispatch of at most so many rounds, the last of which may be evaluated.

        Returns:
          Its rounds, and its seconds without compilation, which are added to `compiling`.
        """
        schedule = self.cohorts.schedule
        first = self.completed % schedule.num_rounds  # short runs begin again
        end = schedule.dispatch_end(first, wish)
        ids, n_max = self.cohorts.ids(first, end)
        flags = np.zeros(len(ids), bool)
        flags[end - first - 1] = evaluated
        begun, compiled = time.monotonic(), compile_seconds()
        store, addresses = self.examples.take(ids)
        self.run, slots = self.rows.take(self.run, ids)
        cohorts = engine.Cohorts(ids, addresses, slots)
        self.run, metrics, probes = self.program.dispatch(
            self.run, store, cohorts, self.evaluated_on, end - first, flags, n_max=n_max
        )
        jax.device_get((metrics, probes))
        self.rows.give(self.run)
        self.completed += end - first
        compiling = compile_seconds() - compiled
        self.compiling += compiling
        return end - first, max(time.monotonic() - begun - compiling, 0.0)

    def close(self) -> None:
        """Forgets clients' rows."""
        self.rows.close()


def pace_of(
    prepared: PreparedRun,
    strategy: Strategy,
    bytes_per_client: Bytes,
    rounds=ROUNDS,
    seconds=SECONDS,
    look: Callable[[Program, Any], None] = lambda program, examples: None,
) -> Pace:
    """Returns the pace of what is built already; arguments as of `Program` and `pace`.

    Before a state is made, `look` is called with the program and the first seed's examples; it may raise.
    """
    begun = time.monotonic()
    program = Program(prepared, strategy, held_out(prepared.dataset, prepared.config.eval_examples), bytes_per_client)
    with (
        contextlib.closing(program.examples(prepared.config.seeds[0])) as examples,
        tempfile.TemporaryDirectory() as scratch,  # for rows that live in a file
    ):
        look(program, examples)
        return _timed(_Laps(program, examples, Checkpoints(scratch)), begun, rounds, seconds)


def _timed(made: _Laps, begun: float, rounds: int, seconds: float) -> Pace:
    """Times rounds of what has been made since `begun`, and closes it."""
    with contextlib.closing(made) as laps:
        laps.lap(1)
        started, laps.compiling = time.monotonic(), 0.0
        timed, took = laps.lap(1)
        before = max(started - begun - took, 0.0)
        one, evaluating = laps.lap(1, evaluated=True)
        while timed + 1 < rounds and time.monotonic() - started < seconds:
            room = (seconds - (time.monotonic() - started)) * timed / max(took, 1e-9)
            more, lasted = laps.lap(max(1, min(rounds - timed - 1, int(room))))
            timed, took = timed + more, took + lasted
    per_round = took / timed / laps.seeds
    # Clients of other sizes may have needed another program.
    return Pace(per_round, before + laps.compiling, max(evaluating / laps.seeds - one * per_round, 0.0))


def pace(
    config: Config, *, rounds: int = ROUNDS, seconds: float = SECONDS, dataset: Dataset | None = None, model: Any = None
) -> Pace:
    """Times a few rounds of a Config as it would be run here, and writes nothing.

    Args:
      config: what would be run.
      rounds: how many are timed at most.
      seconds: after which no further round is timed; two always are, whatever they take.
      dataset: an object in place of the data set that it names.
      model: an object in place of the model that it names.

    Raises:
      UserError: whatever `fedwin.run` would refuse, or a bound that is none.
    """
    checks.integer("pace", rounds=rounds)
    checks.number("pace", 0, open_least=True, seconds=seconds)
    found = checked(config, dataset, model)
    strategy = strategy_choice.chosen(found.prepared.config, found.prepared, found.known, lambda line: None)
    return pace_of(found.prepared, strategy, found.bytes_per_client, rounds, seconds)


GB = 1e9


class Disk(NamedTuple):
    """Bytes of what a run keeps on the disk.

    Attributes:
      parts: part -> bytes.
      free: where it would be written.
    """

    parts: dict[str, int]
    free: int

    def check(self) -> None:
        """Raises UserError unless there is room."""
        needed = sum(self.parts.values())
        if needed > self.free:
            largest = max(self.parts, key=lambda part: self.parts[part])
            remedy = REMEDIES.get(largest, "lower --keep_checkpoints")
            raise UserError(
                f"{largest}: {self.parts[largest] / GB:,.1f} GB of the {needed / GB:,.1f} GB on the disk that this run "
                f"keeps, and {self.free / GB:,.1f} GB are free; {remedy}, or choose another --out_dir."
            )


# What rows of clients and windows in files are called among the parts, and what makes them smaller.
ROWS, WINDOWS = "rows in files", "windows in files"
REMEDIES = {ROWS: "lower --clients_per_round or --num_rounds", WINDOWS: "shorten the windows"}


class Needs(NamedTuple):
    """What a run needs.

    Attributes:
      checked: the run.
      strategy: that it would have.
      memory: bytes by part, activations among them.
      available: what there was before anything was allocated.
      disk: what it keeps.
      pace: what it takes.
    """

    checked: Checked
    strategy: Strategy
    memory: Estimate
    available: Memory
    disk: Disk
    pace: Pace


def needs(
    config: Config,
    *,
    rounds: int = ROUNDS,
    seconds: float = SECONDS,
    dataset: Any = None,
    model: Any = None,
    say: Callable[[str], None] = lambda line: None,
) -> Needs:
    """Compiles a dispatch of a Config, compares what it needs with what there is, and times a few rounds if it fits.

    Args:
      config: what would be run.
      rounds: how many are timed at most.
      seconds: after which no further round is timed.
      dataset: an object in place of the data set that it names.
      model: an object in place of the model that it names.
      say: prints a line.

    Raises:
      UserError: whatever `fedwin.run` would refuse, or it does not fit.
    """
    found = checked(config, dataset, model)
    prepared = found.prepared
    strategy = strategy_choice.chosen(prepared.config, prepared, found.known, say)
    room, disk = available(), disk_of(prepared, strategy, found.directory)
    disk.check()
    memory = estimate(prepared, strategy)

    def look(program: Program, examples) -> None:
        nonlocal memory
        memory = memory.with_activations(temporaries(program, examples))
        memory.check(room)

    pace = pace_of(prepared, strategy, found.bytes_per_client, rounds, seconds, look)
    return Needs(found, strategy, memory, room, disk, pace)


def temporaries(program: Program, examples) -> int:
    """Returns the bytes that a dispatch takes on one device besides its arguments, as XLA says of what it compiled.

    Args:
      program: what is run.
      examples: a residence of the first seed's examples.
    """
    prepared, strategy = program.prepared, program.strategy
    seed = prepared.config.seeds[0]
    schedule = program.schedule(examples)
    slots, _ = program.slots(schedule.longest)
    run = jax.eval_shape(lambda: prepared.start(seed, slots, window_rounds=schedule.window_rounds))
    if strategy.mesh is not None:
        placed = lambda leaf, where: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where)
        run = jax.tree.map(placed, run, strategy.placement(run))
    drawn: Any = CohortSchedule(prepared.federations[seed], schedule, strategy, seed)
    evaluated_on = program.evaluated_on(seed)
    if program.lanes > 1:
        working = VmappedInputs(program, seed_groups(prepared.config)[0])
        run, examples, drawn = jax.eval_shape(working.filled, run), working.examples, working.cohorts
        evaluated_on = working.evaluated_on
    ids, n_max = drawn.ids(0, 1)
    store, rows = examples.take(ids)
    cohorts = engine.Cohorts(ids, rows, np.zeros_like(rows))
    compiled = program.dispatch.compiled(run, store, cohorts, evaluated_on, 1, np.zeros(len(ids), bool), n_max)
    return compiled.memory_analysis().temp_size_in_bytes


def disk_of(prepared: PreparedRun, strategy: Strategy, directory: pathlib.Path) -> Disk:
    """Returns what the checkpoints and rows of all seeds take on the disk.

    Args:
      prepared: the prepared run.
      strategy: pads cohorts.
      directory: of the run.
    """
    config = prepared.config
    windows = window_plan(prepared, config.rounds_per_dispatch)
    filed = windows.rounds if windows.kind == "file" else None
    run = jax.eval_shape(lambda: prepared.start(config.seeds[0], 1, window_rounds=filed))
    row, taking_part = tree.nbytes(run.table), participants(prepared)
    _, kind = table_slots(prepared, strategy, config.rounds_per_dispatch)
    held = {"device": prepared.setting.num_clients, "host": taking_part, "file": 0}[kind]
    between = config.checkpoint_every or config.num_rounds
    made = 2 + (config.num_rounds - 1) // between
    kept = min(max(config.keep_checkpoints, 1) + len(config.keep_rounds), made)
    one = tree.nbytes(run._replace(key=(), table=())) + row * held
    parts = {f"{kept * len(config.seeds)} checkpoints": kept * len(config.seeds) * one}
    if kind == "file":
        # A row that a kept checkpoint needs stays when it changes.
        changed = min(between * config.clients_per_round, taking_part)
        parts[ROWS] = len(config.seeds) * row * (taking_part + kept * changed)
    if windows.disk_bytes:
        parts[WINDOWS] = len(config.seeds) * windows.disk_bytes
    return Disk(parts, free_disk(directory))
