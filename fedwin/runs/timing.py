"""Times rounds of a run on this machine: to choose its strategy (--strategy=auto), and for dry runs."""

import contextlib
import dataclasses
import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np

from fedwin import engine, multi_process, tree
from fedwin.core import Cohort
from fedwin.engine.strategy import STRATEGIES, resolve_strategy
from fedwin.errors import UserError
from fedwin.local import Solver
from fedwin.residence.examples import TrainingExamples, make_examples
from fedwin.residence.rows import DeviceTable, distinct_clients, slots_of
from fedwin.runs.checkpoint import Checkpoints
from fedwin.runs.client_evaluations import ClientEvaluations, sampled
from fedwin.runs.directory import ConfigFile
from fedwin.runs.machine import available
from fedwin.runs.plan import RunPlan, make_plan
from fedwin.runs.prepare import PreparedRun
from fedwin.runs.program import Program
from fedwin.runs.schedule import CohortSchedule, CohortSource, Schedule
from fedwin.runs.seeds import GroupInputs, broadcast_state, seed_state
from fedwin.runs.train import Driver, compile_seconds

# How XLA's message begins when a device has no memory left.
EXHAUSTED = "RESOURCE_EXHAUSTED"
# Rounds under each strategy, as far as the run has them.
STRATEGY_ROUNDS = 2
# Seconds of a round or an evaluation whose first time, or that of a part of it, is accurate enough.
LONG = 1.0
# Clients of each kind on which the evaluation of clients is timed.
TIMED_CLIENTS = 100


def planned(prepared: PreparedRun, previous: str | None) -> RunPlan:
    """Returns the plan of a run without timing; for 'auto', the one that needs the least memory.

    A resumed run keeps its `previous` strategy (of config.json), if this machine has the devices for it.
    """
    name, clients = prepared.config.strategy, prepared.setting.sampling.largest
    if previous is not None:
        try:
            return make_plan(prepared, resolve_strategy(previous, clients))
        except UserError:  # this machine lacks the devices
            name = "default" if name == "auto" else name
    if name == "auto":
        name = "chunked:k=1" if multi_process.count() == 1 else "sharded:k=1"
    return make_plan(prepared, resolve_strategy(name, clients))


def chosen(plan: RunPlan, config_file: ConfigFile | None, say: Callable[[str], None]) -> RunPlan:
    """Returns the plan of a run in all processes, with the fastest strategy for 'auto' if it is not resumed."""
    previous = multi_process.broadcast_object(config_file and config_file.identity.strategy)
    if previous is not None:
        return planned(plan.prepared, previous)
    if plan.prepared.config.strategy != "auto":
        return plan
    name = multi_process.broadcast_object(fastest(plan, say))
    return dataclasses.replace(plan, strategy=resolve_strategy(name, plan.prepared.setting.sampling.largest))


def candidates(clients: int, devices: int) -> list[str]:
    """Returns the strategies to time for cohorts of `clients` on a number of devices."""
    names = ["chunked:k=1", "vmapped"] + [f"chunked:k={k}" for k in (4, 16) if k < clients]
    if multi_process.count() > 1:
        names = []
    if devices > 1:
        names += [f"sharded:devices={devices},k=1", f"sharded:devices={devices},k=0"]
    return names


def fastest(plan: RunPlan, say: Callable[[str], None]) -> str:
    """Times a few rounds under every strategy that fits all processes and returns the name of the fastest."""
    seconds: dict[str, float] = {}
    memory = available()
    for name in candidates(plan.prepared.setting.sampling.largest, jax.device_count()):
        candidate = dataclasses.replace(plan, strategy=STRATEGIES.build(name))
        fits = multi_process.all_gather_integers(candidate.requirements.fits(memory)).all()
        if seconds and not fits:
            say(f"strategy {name}: needs more memory than is available")
            continue
        try:
            seconds[name] = _seconds_per_round(candidate)
        except jax.errors.JaxRuntimeError as error:  # the compiler's buffers are in no requirements
            if not seconds or multi_process.count() > 1 or EXHAUSTED not in str(error):
                raise
            say(f"strategy {name}: needs more memory than the device has")
            continue
        say(f"strategy {name}: {seconds[name] * 1e3:.1f} ms per round")
    return min(seconds, key=lambda name: seconds[name])


class _CohortTable(DeviceTable):
    """The rows of a few clients, ascending, on the device: timing does not need those of a large federation."""

    def __init__(self, clients: np.ndarray):
        super().__init__(len(clients))
        self.clients = clients

    def load(self, run, cohort: Cohort, rounds: int):
        """Returns the state as it is, and every client's row of its table."""
        return run, slots_of(cohort, self.clients, len(self.clients))


def _seconds_per_round(plan: RunPlan) -> float:
    prepared, strategy = plan.prepared, plan.strategy
    seed, largest = prepared.config.seeds[0], prepared.setting.sampling.largest
    rounds = min(STRATEGY_ROUNDS, prepared.config.num_rounds)
    config = dataclasses.replace(prepared.config, num_rounds=rounds, rounds_per_dispatch=rounds)
    cohorts = prepared.cohorts(seed, Schedule(config), strategy)
    table = _CohortTable(distinct_clients(cohorts.cohorts(0, rounds)[0]))
    run = prepared.start(seed, table.slots, window_rounds=rounds)._replace(observers={})
    run = strategy.place(run, strategy.placement(run))
    dispatch = engine.Dispatch(prepared.algorithm, {}, strategy)
    examples = make_examples(prepared.federations[seed], prepared.config.examples, strategy, largest, rounds)
    with contextlib.closing(examples):
        driver = Driver(run, dispatch, (), examples, table, cohorts)
        del run
        for _ in range(2):  # the first dispatch compiles
            driver.load(0, rounds, lambda completed: False)
            started = time.monotonic()
            driver.execute()
            jax.block_until_ready(driver.run)
        return (time.monotonic() - started) / rounds


class Timing(NamedTuple):
    """The duration of a run's parts on this machine; checkpoints, which are few, are not counted.

    Attributes:
      seconds_per_round: training of one seed; of vmapped seeds, the share of one.
      compile_seconds: before the first round: compilation, and placing of examples.
      seconds_per_evaluation: evaluation of all read-outs of one seed.
      seconds_per_client_evaluation: their evaluation on each client's own examples (--eval_clients).
      timed: what was timed, in words.
    """

    seconds_per_round: float
    compile_seconds: float
    seconds_per_evaluation: float
    seconds_per_client_evaluation: float = 0.0
    timed: str = "whole rounds"

    def expected(self, schedule: Schedule, completed: list[int]) -> float:
        """Returns the seconds that remain when each seed has completed a number of rounds."""
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


class PartialCohorts:
    """The cohorts of a seed with some of their clients; the others are skipped, like clients that do not answer.

    Args:
      source: the whole cohorts.
      devices: number of devices that share a cohort.

    Attributes:
      most: clients of each device that take part; None: all.
    """

    def __init__(self, source: CohortSchedule, devices: int):
        self.source, self.schedule, self.devices = source, source.schedule, devices
        self.most: int | None = None

    def cohorts(self, completed: int, end: int) -> tuple[Cohort, int]:
        """Returns cohorts and n_max, as the source does."""
        cohorts, n_max = self.source.cohorts(completed, end)
        place = np.arange(self.source.width) % (self.source.width // self.devices)
        present = cohorts.present & (place < (self.source.width if self.most is None else self.most))
        return cohorts._replace(present=present, size=present.sum(-1, dtype=np.int32)), n_max

    def steps(self, solver: Solver, round: int) -> int:
        """Returns the local steps of the device that takes most of them in a round."""
        cohort = jax.tree.map(lambda values: values[0], self.cohorts(round, round + 1)[0])
        counts = solver.count_steps(self.source.federation.sizes[cohort.ids], round, cohort.work)
        return int((counts * cohort.present).reshape(self.devices, -1).sum(-1).max())


class TimedRun:
    """A run whose dispatches are timed one after another; results are discarded.

    Args:
      examples: training examples of the first seed.

    Attributes:
      seeds: number of seeds that train at the same time.
      compiling: seconds of compilation in dispatches so far.
      evaluating: seconds of the first evaluation, without compilation.
    """

    def __init__(self, program: Program, examples: TrainingExamples):
        self.program, self.seeds = program, program.plan.num_vmapped
        self.seed = program.prepared.config.seeds[0]
        self.schedule = program.schedule(examples)
        self.slots = program.plan.slots(self.schedule.longest)
        self.examples, self.test = examples, program.evaluation_data(self.seed)
        drawn = program.prepared.cohorts(self.seed, self.schedule, program.strategy)
        # Vmapped clients are computed even if they do not take part.
        self._partial = PartialCohorts(drawn, program.strategy.num_devices) if program.strategy.chunk == 1 else None
        self.cohorts: CohortSource = self._partial or drawn
        self._group: GroupInputs | None = None
        if self.seeds > 1:
            self._group = GroupInputs(program, program.plan.groups[0])
            self.examples, self.cohorts, self.test = self._group.examples, self._group.cohorts, self._group.test
            self._partial = None
        self.compiling, self._completed = 0.0, 0

    def activation_bytes(self) -> int:
        """Returns the bytes that a compiled dispatch needs on one device besides its arguments, as reported by XLA."""
        prepared, strategy = self.program.prepared, self.program.strategy
        run = jax.eval_shape(lambda: prepared.start(self.seed, self.slots, window_rounds=self.schedule.window_rounds))
        if strategy.mesh is not None:
            placed = lambda leaf, where: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where)
            run = jax.tree.map(placed, run, strategy.placement(run))
        if self._group is not None:
            run = jax.eval_shape(lambda run: broadcast_state(run, self.seeds), run)
        cohorts, n_max = self.cohorts.cohorts(0, 1)
        store, rows = self.examples.load(cohorts)
        cohorts, flags = cohorts._replace(rows=rows), np.zeros(len(rows), bool)
        compiled = self.program.dispatch.compiled(run, store, cohorts, self.test, 1, flags, n_max)
        analysis = compiled.memory_analysis()
        return 0 if analysis is None else analysis.temp_size_in_bytes

    def start(self, checkpoints: Checkpoints) -> "TimedRun":
        """Creates the state; rows in a file are next to `checkpoints`."""
        program, strategy = self.program, self.program.strategy
        run = program.prepared.start(self.seed, 1, window_rounds=self.schedule.window_rounds)
        self.rows = program.rows(self.seed, run, self.slots, checkpoints)
        run = program.with_table(self.seed, run, self.slots)
        run = strategy.place(run, strategy.placement(run))
        # A separate program, of one batch per device; the first call compiles it.
        whole = program.evaluation_data(self.seed)
        some = tree.map(lambda batches: batches[: strategy.num_devices], whole)
        for _ in range(2):
            begun = time.monotonic()
            program.first_evaluation(run, some)
        self.evaluating = (time.monotonic() - begun) * tree.nbytes(whole) / tree.nbytes(some)
        run = run if self._group is None else broadcast_state(run, self.seeds)
        self._driver = Driver(run, program.dispatch, self.test, self.examples, self.rows, self.cohorts)
        return self

    def timing(self, created: float, rounds: int, seconds: float) -> Timing:
        """Times dispatches of at most `rounds` rounds until `seconds` have passed since the time `created`.

        What takes long is not timed again when they have. For rounds of a second or more, the local steps of one client
        per device are timed, where clients are not vmapped.
        """
        if self._partial is not None:
            self._partial.most = 0
        timed, elapsed = self.time_dispatch(1)
        started, self.compiling = time.monotonic(), 0.0
        before = max(started - created - elapsed, 0.0)
        if self._partial is not None and (estimate := self._scaled(self._partial)) > LONG:
            of_clients, compiling = self.time_client_evaluation(), before + self.compiling
            return Timing(estimate, compiling, self.evaluating, of_clients, "one client and one batch per device")
        late = lambda took: took > LONG and time.monotonic() - created > seconds
        if not late(elapsed):
            timed, elapsed = self.time_dispatch(1)
        evaluation = None if late(max(elapsed, self.evaluating)) else self.time_dispatch(1, evaluated=True)
        end = max(created + seconds, time.monotonic() + LONG)
        while timed + 1 < rounds and (left := end - time.monotonic()) > 0 and not late(elapsed):
            more, took = self.time_dispatch(max(1, min(rounds - timed - 1, int(left * timed / max(elapsed, 1e-9)))))
            timed, elapsed = timed + more, elapsed + took
        per_round = elapsed / timed / self.seeds
        per_evaluation = self.evaluating
        if evaluation is not None:
            per_evaluation = max(evaluation[1] / self.seeds - evaluation[0] * per_round, 0.0)
        of_clients = self.time_client_evaluation()
        # Clients of other sizes may have needed another program.
        return Timing(per_round, before + self.compiling, per_evaluation, of_clients)

    def _scaled(self, partial: PartialCohorts) -> float:
        """Returns the seconds of a round: those without clients, and those of a local step times the steps of all."""
        solver, (_, nobody) = self.program.prepared.solver, self.time_dispatch(1)
        of_step: list[float] = []
        partial.most, spent = 1, 0.0
        while len(of_step) < 3 and spent < LONG:
            steps = partial.steps(solver, self._completed % self.schedule.num_rounds)
            spent += (seconds := self.time_dispatch(1)[1])
            of_step.append(max(seconds - nobody, 0.0) / max(steps, 1))
        partial.most = None
        rounds = range(min(self.schedule.config.rounds_per_dispatch, self.schedule.num_rounds))
        return nobody + min(of_step) * float(np.mean([partial.steps(solver, round) for round in rounds]))

    def time_dispatch(self, most: int, evaluated: bool = False) -> tuple[int, float]:
        """Runs a dispatch of at most `most` rounds, and evaluates the model after the last if `evaluated`.

        Returns the number of its rounds, and its seconds without compilation, which is added to `compiling`.
        """
        first = self._completed % self.schedule.num_rounds  # short runs start again
        end = self.cohorts.schedule.dispatch_end(first, most)
        self._driver.load(first, end, lambda completed: evaluated and completed == end)
        outcome = self._driver.execute()
        self._completed += end - first
        self.compiling += outcome.compiling
        return end - first, max(outcome.seconds - outcome.compiling, 0.0)

    def time_client_evaluation(self) -> float:
        """Returns the seconds of evaluating one seed's clients, extrapolated from a sample; adds to `compiling`."""
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
