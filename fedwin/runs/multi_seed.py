"""Trains the seeds of a run: one after the other, or vmapped in one program (--seeds_at_once)."""

import contextlib
import dataclasses
import functools
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedwin import engine, multi_process
from fedwin.callbacks import RunCallbacks
from fedwin.data.federation import Store
from fedwin.engine.strategy import Strategy
from fedwin.errors import UserError
from fedwin.residence.examples import ResidentExamples, should_stream
from fedwin.residence.rows import ClientTable
from fedwin.runs import signals
from fedwin.runs.checkpoint import Checkpoints, NoCheckpoints
from fedwin.runs.client_evaluations import ClientEvaluations
from fedwin.runs.config import Config
from fedwin.runs.journal import ClientEvaluation, Evaluations, Journal, Metrics, progress_note
from fedwin.runs.metrics_log import MetricsLog
from fedwin.runs.prepare import PreparedRun
from fedwin.runs.program import Program
from fedwin.runs.resources import estimate, table_slots, window_plan
from fedwin.runs.schedule import Attendance, CohortSchedule, Schedule, VmappedCohorts
from fedwin.runs.seed_groups import common_buckets, group_size, seed_groups, seeds_label
from fedwin.runs.start import starting_state
from fedwin.runs.train import Parts, Result, train, train_seed


class ReadySeed(NamedTuple):
    """A seed that is ready to train.

    Attributes:
      run: its state.
      rows: its client table.
      journal: its journal.
    """

    run: engine.RunState
    rows: ClientTable
    journal: Journal


class SeedRunner:
    """Trains the seeds of a run, each from its newest checkpoint if it has one.

    Args:
      program: the compiled program.
      directory: the run's directory.
      metrics_log: file of evaluations; None in a process that does not write.
      quiet: whether to show no progress.
      say: prints a line.
      callbacks: called after each evaluation, or None.
    """

    def __init__(
        self,
        program: Program,
        directory: pathlib.Path,
        metrics_log: MetricsLog | None,
        quiet: bool,
        say: Callable[[str], None],
        callbacks: RunCallbacks | None = None,
    ):
        self.program, self.directory, self.metrics_log = program, directory, metrics_log
        self.quiet, self.say, self.callbacks = quiet, say, callbacks
        self.clients = ClientEvaluations(program) if program.prepared.config.eval_clients else None

    def train(self) -> dict[int, Result]:
        """Trains all seeds; returns seed -> outcome."""
        results: dict[int, Result] = {}
        for group in seed_groups(self.program.prepared.config):
            if self.program.num_vmapped == 1:
                results |= {seed: self._train_one(seed) for seed in group}
            else:
                results |= self._train_vmapped(group)
        return results

    def _train_one(self, seed: int) -> Result:
        program, prepared = self.program, self.program.prepared
        with contextlib.ExitStack() as closing:
            examples = closing.enter_context(contextlib.closing(program.examples(seed)))
            schedule, test = program.schedule(examples), program.evaluation_data(seed)
            self.say(f"seed {seed}: {estimate(prepared, program.strategy, seed)}")
            cohorts = prepared.cohorts(seed, schedule, program.strategy)
            (run, rows, journal), _ = self._ready(seed, cohorts, lambda: test, closing, placed=True)
            parts = Parts(program.dispatch, test, examples, rows, cohorts)
            if self.clients is not None:
                evaluate_clients = closing.enter_context(self.clients.of(seed))
                parts = dataclasses.replace(parts, evaluate_clients=evaluate_clients)
            result = train_seed(run, parts, journal, None if self.quiet else seeds_label([seed]))
        if examples.waited:
            self.say(f"seed {seed}: {examples.waited:.2f} s of {result.seconds:.1f} s were spent waiting for examples")
        result.run = None  # the next seed needs its memory
        return result

    def _train_vmapped(self, seeds: Sequence[int]) -> dict[int, Result]:
        program = self.program
        self.say(f"{seeds_label(seeds)}: {estimate(program.prepared, program.strategy, seeds[0])}")
        inputs, journals = VmappedInputs(program, seeds), {}
        group = VmappedSeeds(program, inputs, self.quiet)
        with contextlib.ExitStack() as closing:
            for index, seed in enumerate(seeds):
                test = lambda seed=seed: program.evaluation_data(seed)
                ready, fresh = self._ready(seed, inputs.cohorts.members[index], test, closing, placed=False)
                journals[seed], rows = ready.journal, ready.rows
                group.add(index, ready, fresh)
                del ready  # its state is in the vmapped one, or in a checkpoint
                if self.clients is not None:
                    group.evaluate_clients[index] = closing.enter_context(self.clients.of(seed))
            dispatches = group.train(rows)
            for journal in journals.values():
                journal.finish()
        return {seed: journal.result(None, dispatches) for seed, journal in journals.items()}

    def _ready(
        self, seed: int, cohorts: CohortSchedule, test: Callable[[], Any], closing: contextlib.ExitStack, placed: bool
    ) -> tuple[ReadySeed, bool]:
        """Returns a seed that is ready to train, and whether it starts from its first round.

        Args:
          seed: the seed.
          cohorts: which clients take part, and when the run evaluates and saves.
          test: returns the data that a fresh state is evaluated on.
          closing: closes table and checkpoints at the end.
          placed: whether to place a state from a checkpoint on the devices; a fresh one always is.
        """
        program, prepared, strategy = self.program, self.program.prepared, self.program.strategy
        config, folder = prepared.config, self.directory / "checkpoints" / f"seed_{seed}"
        schedule, sampler = cohorts.schedule, cohorts.sampler
        kind_of = Checkpoints if multi_process.is_first() else NoCheckpoints
        checkpoints = kind_of(folder, config.keep_checkpoints, config.keep_rounds)
        closing.enter_context(contextlib.closing(checkpoints))
        slots, kind = program.slots(schedule.longest)
        # On the device one row is enough to describe the table, which a checkpoint may replace.
        run = prepared.start(seed, 1 if kind == "device" else slots, window_rounds=schedule.window_rounds)
        rows = closing.enter_context(contextlib.closing(program.rows(seed, run, slots, kind, checkpoints)))
        run, saved, _ = starting_state(program, seed, rows, checkpoints, self.metrics_log, run, self.say)
        extra = saved or {}
        if placed or saved is None:
            run = strategy.place(run, strategy.placement(run))
        down, up = (sampler.largest * size for size in program.bytes_per_client)
        attendance = None
        if sampler.varies:
            attendance = Attendance(cohorts, program.bytes_per_client, extra.get("attendance"), int(run.round))
        journal = Journal(
            seed,
            self.metrics_log,
            checkpoints,
            rows,
            bytes_per_round=(down, up),
            attendance=attendance,
            saved=saved,
            callbacks=self.callbacks,
            privacy=prepared.privacy,
            simulated=prepared.simulated_time(cohorts, program.bytes_per_client, extra.get("simulated")),
        )
        if saved is not None and self.callbacks is not None:
            self.callbacks.resume(seed, lambda: self.metrics_log.lines(seed) if self.metrics_log else [])
        if saved is None:
            # A seed trains at least until its next evaluation: what a callback returns for this one does not count.
            journal.write_evaluation(int(run.round), program.first_evaluation(run, test()), None)
            journal.save(int(run.round), run)
        return ReadySeed(run, rows, journal), saved is None


class VmappedSeeds:
    """Trains a group of vmapped seeds to the end.

    If a run was killed between the checkpoints of two seeds, those that are behind train first, until they have
    completed as many rounds as the others.

    Args:
      program: the compiled program.
      inputs: examples, cohorts and test data of the group.
      quiet: whether to show no progress.

    Attributes:
      evaluate_clients: position on the vmapped axis -> state -> evaluation on each client's own examples.
    """

    def __init__(self, program: Program, inputs: "VmappedInputs", quiet: bool):
        self.program, self.inputs, self.quiet = program, inputs, quiet
        self.stop, self.num_rounds = inputs.schedule.stop_on_divergence, inputs.schedule.num_rounds
        self._run: engine.RunState | None = None
        self._dispatches = 0
        self._training: dict[int, Journal] = {}
        self._waiting: dict[int, tuple[int, ReadySeed]] = {}
        self._completed = 0
        self.evaluate_clients: dict[int, Callable[[engine.RunState], ClientEvaluation]] = {}

    def add(self, index: int, ready: ReadySeed, fresh: bool) -> None:
        """Adds a seed; a fresh state is copied at once, so that only one of them is in memory at a time.

        Args:
          index: the seed's position on the vmapped axis.
          ready: the seed.
          fresh: whether it has not trained yet, so that no other seed is behind it.
        """
        self._waiting[index] = int(ready.run.round), ready
        if fresh:
            self._completed = int(ready.run.round)
            self._enter(index)

    def _enter(self, index: int) -> None:
        """Copies the state of a waiting seed into the vmapped state."""
        _, ready = self._waiting.pop(index)
        run = self.program.strategy.place(ready.run)
        # Positions without a training seed must hold a state of this round, too.
        self._run = self.inputs.broadcast_state(run) if self._run is None else set_seed_state(self._run, run, index)
        self._training[index] = ready.journal

    def train(self, rows: ClientTable) -> int:
        """Trains all seeds; returns the number of dispatches.

        Args:
          rows: the client table of any seed: tables on the device hold nothing themselves.
        """
        inputs = self.inputs
        parts = Parts(self.program.dispatch, inputs.test, inputs.examples, rows, inputs.cohorts)
        self._waiting = {
            index: (round, ready)
            for index, (round, ready) in self._waiting.items()
            if round < self.num_rounds and ready.journal.stopped_at is None
        }
        while self._training or self._waiting:
            if not self._training:
                self._run, self._completed = None, min(round for round, _ in self._waiting.values())
            for index in [index for index, (round, _) in self._waiting.items() if round == self._completed]:
                self._enter(index)
            until = min((round for round, _ in self._waiting.values()), default=self.num_rounds)
            self._train_until(until, parts)
        return self._dispatches

    def _train_until(self, until: int, parts: Parts) -> None:
        journals = VmappedJournals(self._training, self.stop)
        assert self._run is not None
        label = None if self.quiet else seeds_label([self.inputs.seeds[index] for index in sorted(self._training)])
        if self.evaluate_clients:
            parts = dataclasses.replace(parts, evaluate_clients=lambda run: self._clients(run, journals))
        self._run, dispatches = train(self._run, parts, journals, label, completed=self._completed, until=until)
        self._dispatches, self._completed = self._dispatches + dispatches, until
        self._training = journals.active if until < self.num_rounds else {}

    def _clients(self, run: engine.RunState, journals: "VmappedJournals") -> dict[int, ClientEvaluation]:
        """Evaluates the vmapped state on each client's own examples, for every seed that has not ended."""
        return {index: self.evaluate_clients[index](seed_state(run, index)) for index in journals.active}


class VmappedJournals:
    """The journals of vmapped seeds, behind the interface of one Journal.

    The time of a dispatch is divided among the seeds that train in it, so that their seconds add up to the elapsed
    time, as they do if one seed trains after the other.

    Args:
      journals: position on the vmapped axis -> the seed's journal.
      stop: whether a seed ends when it diverges; the others continue. One that a callback stopped always ends.
    """

    def __init__(self, journals: Mapping[int, Journal], stop: bool):
        self.journals, self.stop = dict(journals), stop

    @property
    def active(self) -> dict[int, Journal]:
        """The journals of the seeds that have not ended."""
        return {index: journal for index, journal in self.journals.items() if not journal.ended(self.stop)}

    def ended(self, stop: bool) -> bool:
        """Whether no seed trains further."""
        return not self.active

    def add_time(self, rounds: int, seconds: float, compiling: float) -> None:
        """Adds the duration of a dispatch, and how much of it was compilation."""
        active = self.active.values()
        for journal in active:
            journal.add_time(rounds, seconds / len(active), compiling / len(active))

    def record(
        self,
        completed: int,
        metrics: Metrics,
        evaluations: Evaluations,
        flags: np.ndarray,
        count: int,
        stop: bool,
        clients: Mapping[int, ClientEvaluation] | None = None,
    ) -> np.ndarray:
        """Writes the evaluations of a dispatch, as Journal.record does; leaves are [R_max, seeds].

        Args:
          completed: rounds before the dispatch.
          metrics: name -> Mean.
          evaluations: read-out -> metric -> values.
          flags: which rounds were evaluated, bool [R_max].
          count: rounds of the dispatch.
          stop: whether a seed ends at the first divergence.
          clients: position on the vmapped axis -> evaluation on each client's own examples, or None.

        Returns:
          The training loss of every round [R_max], a mean over the seeds.
        """
        losses = []
        for index, journal in self.active.items():
            of_seed = lambda values, index=index: jax.tree.map(lambda leaf: leaf[:, index], values)
            measured = of_seed(metrics), of_seed(evaluations), flags
            losses.append(journal.record(completed, *measured, count, stop, (clients or {}).get(index)))
        return np.mean(losses, 0)

    def save_stopped(self, completed: int, run: engine.RunState) -> None:
        """Saves a checkpoint of the seeds that a callback stopped after `completed` rounds."""
        for index, journal in self.journals.items():
            if journal.stopped_at == completed and journal.checkpoints is not None:
                journal.write_checkpoint(completed, seed_state(run, index))

    def save(self, completed: int, run: engine.RunState) -> None:
        """Saves a checkpoint of every seed that has not ended."""
        for index, journal in self.active.items():
            if journal.checkpoints is not None and journal.saved_round != completed:
                journal.write_checkpoint(completed, seed_state(run, index))
        if (watch := signals.active()) is not None:
            watch.mark_saved()

    def mark_unsaved(self) -> None:
        """Notes that rounds have been computed since the last checkpoint."""
        for journal in self.journals.values():
            journal.mark_unsaved()

    def end_if_interrupted(self, completed: int, run: engine.RunState, ended: bool) -> None:
        """Saves the states and raises Interrupted if Ctrl-C or SIGTERM was received.

        Args:
          completed: completed rounds.
          run: the vmapped state.
          ended: whether all seeds end here because they diverged or were stopped.

        Raises:
          Interrupted: a signal was received.
        """
        watch, journals = signals.active(), self.journals.values()
        if watch is None or not watch.requested or all(journal.checkpoints is None for journal in journals):
            return
        if ended:
            raise signals.Interrupted(watch.requested, "interrupted; the same command resumes.")
        self.save(completed, run)
        raise signals.Interrupted(
            watch.requested, f"interrupted; saved after round {completed}, the same command resumes there."
        )

    def progress_note(self, loss: float) -> str:
        """Returns loss and latest accuracies for the progress line, means over the seeds that have not ended."""
        journals = (self.active or self.journals).values()
        return progress_note(loss, [journal.lines[-1] for journal in journals if journal.lines])


class VmappedExamples(ResidentExamples):
    """Training examples of vmapped seeds: on the device once, with one index per seed.

    Args:
      members: the examples of each seed.
      partitions_differ: whether clients hold different examples under different seeds; if not, one index serves all.
      capacity: number of entries of an index.
    """

    def __init__(self, members: Sequence[ResidentExamples], partitions_differ: bool, capacity: int):
        stores = [member.store for member in members]
        self.store = stores[0]
        if partitions_differ:
            padded = [store._replace(examples=(), order=_padded(store.order, capacity)) for store in stores]
            stacked: Store = jax.tree.map(lambda *leaves: jnp.stack(leaves), *padded)
            self.store = stacked._replace(examples=stores[0].examples)


def _padded(order: jax.Array, capacity: int) -> jax.Array:
    return jnp.pad(order, (0, capacity - order.shape[0]))


class VmappedInputs:
    """Examples, cohorts and test data of a group of vmapped seeds.

    The vmapped axis always has the same length, however many seeds are still training: a seed computes the same bits
    whether the others have ended or not. Unused positions repeat the first seed.

    Args:
      program: the compiled program.
      seeds: the group, at most as many as the vmapped axis is long.

    Attributes:
      seeds: one per position on the vmapped axis.
      examples: training examples.
      cohorts: which clients take part.
      test: data that read-outs are evaluated on.
    """

    def __init__(self, program: Program, seeds: Sequence[int]):
        prepared, self.num_vmapped = program.prepared, program.num_vmapped
        self.seeds = (*seeds, *(seeds[0] for _ in range(self.num_vmapped - len(seeds))))
        members: list[ResidentExamples] = [program.examples(seed) for seed in self.seeds]
        capacity = max(len(federation.partition.order) for federation in prepared.federations.values())
        self.examples = VmappedExamples(members, program.partitions_differ, capacity)
        schedule = program.schedule(self.examples)
        drawn = [prepared.cohorts(seed, schedule, program.strategy) for seed in self.seeds]
        self.cohorts = VmappedCohorts(drawn, common_buckets(prepared.federations))
        self.test = program.vmapped_evaluation_data(self.seeds)

    @property
    def schedule(self) -> Schedule:
        """When the run evaluates, saves, and ends dispatches."""
        return self.cohorts.schedule

    def broadcast_state(self, run: engine.RunState) -> engine.RunState:
        """Returns a vmapped state with the state of one seed at every position; may be traced."""
        return broadcast_state(run, self.num_vmapped)


@functools.partial(jax.jit, static_argnums=1)
def broadcast_state(run, num_vmapped: int):
    """Returns a vmapped state [num_vmapped, ...] with `run` at every position."""
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (num_vmapped, *leaf.shape)), run)


@functools.partial(jax.jit, donate_argnums=0)
def set_seed_state(vmapped, run, index):
    """Returns a vmapped state (donated) with `run` at one position."""
    return jax.tree.map(lambda leaf, value: leaf.at[index].set(value), vmapped, run)


@jax.jit
def seed_state(vmapped, index):
    """Returns a copy of the state at one position of a vmapped state."""
    return jax.tree.map(lambda leaf: leaf[index], vmapped)


def check_processes(config: Config) -> None:
    """Raises UserError if vmapped seeds are combined with several processes or with --strategy=auto."""
    if group_size(config) == 1:
        return
    if multi_process.count() > 1:
        raise _refused(config, f"works in one process, and there are {multi_process.count()}", "leave it out")
    if config.strategy == "auto":
        raise _refused(config, "does not go with strategy=auto, which times one seed", "name one: --strategy=vmapped")


def check(prepared: PreparedRun, strategy: Strategy) -> None:
    """Checks that the seeds of a run can be vmapped, if --seeds_at_once asks for it.

    Args:
      prepared: the prepared run.
      strategy: how cohorts are executed.

    Raises:
      UserError: several devices, offloaded data, or seeds whose clients differ in shapes.
    """
    config, rounds = prepared.config, prepared.config.rounds_per_dispatch
    if group_size(config) == 1:
        return
    if strategy.mesh is not None:
        raise _refused(config, f"needs one device, and strategy={strategy} has several", "set --strategy=vmapped")
    if should_stream(next(iter(prepared.federations.values())), config.examples):
        raise _refused(config, "needs all examples on the device, and they are streamed", "set --examples=device")
    residences = {
        "table": ("clients' rows", table_slots(prepared, strategy, rounds)[1]),
        "window": ("windows", window_plan(prepared, rounds).kind),
    }
    for flag, (data, kind) in residences.items():
        if kind != "device":
            raise _refused(config, f"needs {data} on the device, and they are in the {kind}", f"set --{flag}=device")
    shapes = {
        seed: jax.tree.map(lambda leaf: leaf.shape, federation.shapes().info)
        for seed, federation in prepared.federations.items()
    }
    first = config.seeds[0]
    for seed, shape in shapes.items():
        if shape != shapes[first]:
            raise _refused(
                config,
                f"is impossible: the clients of the seeds {first} and {seed} have information of different shapes",
                "set --partition_seed",
            )


def _refused(config: Config, why: str, remedy: str) -> UserError:
    return UserError(f"seeds_at_once={config.seeds_at_once} {why}; {remedy}, or --seeds_at_once=1.")
