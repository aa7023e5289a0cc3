"""Dry runs: the plan of a run, and its memory, disk space and time, measured on a few rounds. Nothing is written."""

import contextlib
import tempfile
import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np

from fedwin import engine
from fedwin.data import Dataset
from fedwin.engine import devices
from fedwin.engine.evaluate import held_out
from fedwin.models import Model
from fedwin.residence.examples import TrainingExamples
from fedwin.runs.checkpoint import Checkpoints
from fedwin.runs.client_evaluations import ClientEvaluations, sampled
from fedwin.runs.config import Config
from fedwin.runs.machine import Memory, available, free_disk
from fedwin.runs.plan import Requirements
from fedwin.runs.prepare import prepare
from fedwin.runs.program import Program
from fedwin.runs.progress import compile_seconds
from fedwin.runs.run import CheckedRun, prepare_and_check
from fedwin.runs.schedule import CohortSource, Schedule
from fedwin.runs.seeds import GroupInputs, seed_state
from fedwin.runs.strategy_choice import chosen
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


class DryRun(NamedTuple):
    """The result of a dry run.

    Attributes:
      checked: the run and its plan.
      requirements: bytes by part, including activations.
      available: memory that was available before anything was allocated.
      free_disk: free bytes where the run would be written.
      timing: duration of its rounds.
    """

    checked: CheckedRun
    requirements: Requirements
    available: Memory
    free_disk: int
    timing: Timing


def measure_requirements(
    config: Config,
    *,
    rounds: int = ROUNDS,
    seconds: float = SECONDS,
    dataset: Dataset | None = None,
    model: Model | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> DryRun:
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
    with devices.settings(config.precision):
        checked = prepare_and_check(config, dataset, model)
        checked = checked._replace(plan=chosen(checked.plan, checked.previous_strategy, say))
        plan, memory, free = checked.plan, available(), free_disk(checked.directory)
        plan.requirements.check_disk(free)
        started, config = time.monotonic(), plan.prepared.config
        program = Program(plan, held_out(plan.prepared.dataset, config.eval_examples))
        with (
            contextlib.closing(program.examples(config.seeds[0])) as examples,
            tempfile.TemporaryDirectory() as scratch,  # for rows that are in a file
        ):
            timed = TimedRun(program, examples)
            requirements = plan.requirements.with_activations(timed.activation_bytes())
            requirements.check_memory(memory)
            with contextlib.closing(timed.start(Checkpoints(scratch))):
                timing = timed.timing(started, rounds, seconds)
        return DryRun(checked, requirements, memory, free, timing)


class TimedRun:
    """A run whose dispatches are timed one after another; results are discarded.

    Args:
      program: the compiled program.
      examples: training examples of the first seed.

    Attributes:
      seeds: number of seeds that train at the same time.
      compiling: seconds of compilation in dispatches so far.
    """

    def __init__(self, program: Program, examples: TrainingExamples):
        self.program, self.seeds = program, program.plan.num_vmapped
        self.seed = program.prepared.config.seeds[0]
        self.schedule = program.schedule(examples)
        self.slots = program.plan.slots(self.schedule.longest)
        self.examples, self.test = examples, program.evaluation_data(self.seed)
        self.cohorts: CohortSource = program.prepared.cohorts(self.seed, self.schedule, program.strategy)
        self._group: GroupInputs | None = None
        if self.seeds > 1:
            self._group = GroupInputs(program, program.plan.groups[0])
            self.examples, self.cohorts, self.test = self._group.examples, self._group.cohorts, self._group.test
        self.compiling, self._completed = 0.0, 0

    def activation_bytes(self) -> int:
        """Returns the bytes that a compiled dispatch needs on one device besides its arguments, as reported by XLA."""
        prepared, strategy = self.program.prepared, self.program.strategy
        run = jax.eval_shape(lambda: prepared.start(self.seed, self.slots, window_rounds=self.schedule.window_rounds))
        if strategy.mesh is not None:
            placed = lambda leaf, where: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where)
            run = jax.tree.map(placed, run, strategy.placement(run))
        if self._group is not None:
            run = jax.eval_shape(self._group.broadcast, run)
        cohorts, n_max = self.cohorts.cohorts(0, 1)
        store, rows = self.examples.load(cohorts)
        cohorts, flags = cohorts._replace(rows=rows), np.zeros(len(rows), bool)
        compiled = self.program.dispatch.compiled(run, store, cohorts, self.test, 1, flags, n_max)
        return compiled.memory_analysis().temp_size_in_bytes

    def start(self, checkpoints: Checkpoints) -> "TimedRun":
        """Creates the state; rows in a file are next to `checkpoints`."""
        program, strategy = self.program, self.program.strategy
        run = program.prepared.start(self.seed, 1, window_rounds=self.schedule.window_rounds)
        self.rows = program.rows(self.seed, run, self.slots, checkpoints)
        run = program.with_table(self.seed, run, self.slots)
        run = strategy.place(run, strategy.placement(run))
        # A separate program.
        program.first_evaluation(run, program.evaluation_data(self.seed))
        run = run if self._group is None else self._group.broadcast(run)
        self._driver = Driver(run, Parts(program.dispatch, self.test, self.examples, self.rows, self.cohorts))
        return self

    def timing(self, created: float, rounds: int, seconds: float) -> Timing:
        """Times dispatches of at most so many rounds and seconds; the run has been built since time `created`."""
        self.time_dispatch(1)
        started, self.compiling = time.monotonic(), 0.0
        timed, elapsed = self.time_dispatch(1)
        before = max(started - created - elapsed, 0.0)
        evaluated, with_evaluation = self.time_dispatch(1, evaluated=True)
        while timed + 1 < rounds and time.monotonic() - started < seconds:
            affordable = (seconds - (time.monotonic() - started)) * timed / max(elapsed, 1e-9)
            more, took = self.time_dispatch(max(1, min(rounds - timed - 1, int(affordable))))
            timed, elapsed = timed + more, elapsed + took
        per_round = elapsed / timed / self.seeds
        per_evaluation = max(with_evaluation / self.seeds - evaluated * per_round, 0.0)
        of_clients = self.time_client_evaluation()
        # Clients of other sizes may have needed another program.
        return Timing(per_round, before + self.compiling, per_evaluation, of_clients)

    def time_dispatch(self, most: int, evaluated: bool = False) -> tuple[int, float]:
        """Runs a dispatch.

        Args:
          most: maximum number of its rounds.
          evaluated: whether the model after its last round is evaluated.

        Returns:
          Its rounds, and its seconds without compilation, which is added to `compiling`.
        """
        first = self._completed % self.schedule.num_rounds  # short runs start again
        end = self.cohorts.schedule.dispatch_end(first, most)
        self._driver.load(first, end, lambda completed: evaluated and completed == end)
        outcome = self._driver.execute()
        self._completed += end - first
        self.compiling += outcome.compiling
        return end - first, max(outcome.seconds - outcome.compiling, 0.0)

    def time_client_evaluation(self) -> float:
        """Returns the seconds of an evaluation of one seed on each client's own examples, extrapolated from a sample.

        Its compilation is added to `compiling`.
        """
        evaluated, run = self.program.prepared.evaluated, self._driver.run
        if not evaluated:
            return 0.0
        few = {name: sampled(clients, TIMED_CLIENTS) for name, clients in evaluated[self.seed].items()}
        evaluations = ClientEvaluations(self.program, evaluated | {self.seed: few})
        run = run if self._group is None else seed_state(run, 0)
        with evaluations.of(self.seed) as evaluate:
            compiled = compile_seconds()
            evaluate(run)
            self.compiling += compile_seconds() - compiled
            started = time.monotonic()
            evaluate(run)
        count = lambda found: sum(len(clients.ids) for clients in found.values())
        return (time.monotonic() - started) * count(evaluated[self.seed]) / count(few)

    def close(self) -> None:
        """Closes the client table."""
        self.rows.close()


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

    with devices.settings(config.precision):
        return sorted(jax.eval_shape(read))
