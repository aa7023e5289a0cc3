"""States of several seeds in one: a leading axis of lanes; and the examples that they share."""

import contextlib
import functools
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedwin import engine, multi_process
from fedwin.data.federation import Store
from fedwin.engine.strategy import Strategy
from fedwin.errors import UserError
from fedwin.residence.examples import Resident, should_stream
from fedwin.runs import signals
from fedwin.runs.checkpoint import Checkpoints
from fedwin.runs.config import Config
from fedwin.runs.consistency import NoCheckpoints
from fedwin.runs.journal import Journal, noted
from fedwin.runs.metrics_log import MetricsLog
from fedwin.runs.prepare import PreparedRun
from fedwin.runs.program import Program
from fedwin.runs.resources import estimate, table_slots, window_plan
from fedwin.runs.restore import starting_state
from fedwin.runs.schedule import CohortSchedule, Schedule, VmappedCohorts
from fedwin.runs.seed_groups import common_buckets, group_size, seed_groups, seeds_label
from fedwin.runs.train import Parts, Result, result_of, train, train_seed


@functools.partial(jax.jit, static_argnums=1)
def broadcast_state(run, lanes: int):
    """Returns a state of so many lanes, `run` in each of them."""
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (lanes, *leaf.shape)), run)


@functools.partial(jax.jit, donate_argnums=0)
def set_seed_state(several, run, lane):
    """Returns a state of several lanes (donated), with `run` in one of them."""
    return jax.tree.map(lambda leaf, own: leaf.at[lane].set(own), several, run)


@jax.jit
def seed_state(several, lane):
    """Returns a copy of what one lane holds."""
    return jax.tree.map(lambda leaf: leaf[lane], several)


class VmappedExamples(Resident):
    """The examples of several seeds, which stay on the device: there once, with an index for every lane.

    Args:
      members: the examples of each lane's seed.
      apart: whether the lanes' clients hold different ones; if not, one index serves all.
      room: entries of an index.
    """

    def __init__(self, members: Sequence[Resident], apart: bool, room: int):
        stores = [member.store for member in members]
        self.store = stores[0]
        if apart:
            padded = [store._replace(examples=(), order=_padded(store.order, room)) for store in stores]
            together: Store = jax.tree.map(lambda *leaves: jnp.stack(leaves), *padded)
            self.store = together._replace(examples=stores[0].examples)


def _padded(order, room: int):
    return jnp.pad(order, (0, room - order.shape[0]))


class VmappedInputs:
    """What the dispatches of a group of seeds work with.

    The program always has the same number of lanes, whoever is left to train: a seed computes the same bits whether or
    not the others have ended, or are further on after a kill. Lanes that nobody reads repeat the first seed.

    Args:
      program: what is run.
      seeds: of the group, at most one for each lane.

    Attributes:
      examples: their residence.
      cohorts: who takes part.
      evaluated_on: what is evaluated on.
    """

    def __init__(self, program: Program, seeds: Sequence[int]):
        prepared, self.number = program.prepared, program.lanes
        self.seeds = (*seeds, *(seeds[0] for _ in range(self.number - len(seeds))))
        members: list[Resident] = [program.examples(seed) for seed in self.seeds]
        room = max(len(found.partition.order) for found in prepared.federations.values())
        self.examples = VmappedExamples(members, program.apart, room)
        schedule = program.schedule(self.examples)
        drawn = [CohortSchedule(prepared.federations[seed], schedule, program.strategy, seed) for seed in self.seeds]
        self.cohorts = VmappedCohorts(drawn, common_buckets(prepared.federations))
        self.evaluated_on = program.evaluated_in_lanes(self.seeds)

    @property
    def schedule(self) -> Schedule:
        """When what happens."""
        return self.cohorts.schedule

    def broadcast_state(self, run: engine.RunState) -> engine.RunState:
        """Returns a state with that of one seed in every lane; may be traced."""
        return broadcast_state(run, self.number)


class PreparedSeed(NamedTuple):
    """A seed that is ready to train.

    Attributes:
      run: its state, not yet in a lane.
      rows: the residence of its clients' rows.
      journal: its own.
    """

    run: engine.RunState
    rows: Any
    journal: Journal


class VmappedSeeds:
    """Trains the seeds of a group to the end.

    Those that are behind, because a kill came between two seeds' checkpoints, train until they meet the others.

    Args:
      program: what is run.
      working: what the dispatches work with.
      quiet: show no progress.
    """

    def __init__(self, program: Program, working: VmappedInputs, quiet: bool):
        self.program, self.working, self.quiet = program, working, quiet
        self.stop, self.last = working.schedule.stop_on_divergence, working.schedule.num_rounds
        self._run: engine.RunState | None = None
        self._dispatches = 0
        self._going: dict[int, Journal] = {}
        self._waiting: dict[int, tuple[int, PreparedSeed]] = {}
        self._completed = 0

    def add(self, lane: int, begun: PreparedSeed, fresh: bool) -> None:
        """Takes a seed in; a fresh state goes to its lane at once, so that one of those is in memory at a time.

        Args:
          lane: its own.
          begun: the seed.
          fresh: whether it has trained nothing yet, so that no other seed is behind it.
        """
        self._waiting[lane] = int(begun.run.round), begun
        if fresh:
            self._completed = int(begun.run.round)
            self._enter(lane)

    def _enter(self, lane: int) -> None:
        _, begun = self._waiting.pop(lane)
        run = self.program.strategy.place(begun.run)
        # Lanes that are not read must hold a state of this round, too.
        self._run = self.working.broadcast_state(run) if self._run is None else set_seed_state(self._run, run, lane)
        self._going[lane] = begun.journal

    def train(self, rows: Any) -> int:
        """Trains all of them; returns the dispatches that it took.

        Args:
          rows: the residence of clients' rows, of any seed: on the device there is nothing in it.
        """
        working = self.working
        parts = Parts(self.program.dispatch, working.evaluated_on, working.examples, rows, working.cohorts)
        self._waiting = {lane: found for lane, found in self._waiting.items() if found[0] < self.last}
        while self._going or self._waiting:
            if not self._going:
                self._run, self._completed = None, min(round for round, _ in self._waiting.values())
            for lane in [lane for lane, (round, _) in self._waiting.items() if round == self._completed]:
                self._enter(lane)
            until = min((round for round, _ in self._waiting.values()), default=self.last)
            self._until(until, parts)
        return self._dispatches

    def _until(self, until: int, parts: Parts) -> None:
        journals = VmappedJournals(self._going, self.stop)
        assert self._run is not None
        title = None if self.quiet else seeds_label([self.working.seeds[lane] for lane in sorted(self._going)])
        self._run, dispatches = train(self._run, parts, journals, title, completed=self._completed, until=until)
        self._dispatches, self._completed = self._dispatches + dispatches, until
        self._going = journals.going if until < self.last else {}


class VmappedJournals:
    """The journals of some lanes, with the methods of one that the loop over dispatches calls.

    The time of a dispatch is shared out among the seeds that train in it, so that their seconds add up to those of the
    clock, as where one trains after the other.

    Args:
      journals: lane -> the journal of its seed.
      stop: whether a seed ends when it diverges; the others go on, and its lane is not read any more.
    """

    def __init__(self, journals: Mapping[int, Journal], stop: bool):
        self.journals, self.stop = dict(journals), stop

    @property
    def going(self) -> dict[int, Journal]:
        """Those that have not ended."""
        return {lane: own for lane, own in self.journals.items() if not (self.stop and own.diverged_at is not None)}

    @property
    def diverged_at(self) -> int | None:
        """The round whose loss was not finite in the last seed that was left; None as long as one goes on."""
        return None if self.going else max(own.diverged_at or 0 for own in self.journals.values())

    def took(self, rounds: int, seconds: float, compiling: float) -> None:
        """Adds up what a dispatch took, and how much of it was compilation."""
        going = self.going.values()
        for own in going:
            own.took(rounds, seconds / len(going), compiling / len(going))

    def dispatched(self, completed: int, metrics, probes, flags: np.ndarray, count: int, stop: bool) -> np.ndarray:
        """Writes what a dispatch found, as Journal.dispatched does; leaves are [R_max, lanes].

        Returns:
          The training loss of every round [R_max], a mean over the seeds.
        """
        losses = []
        for lane, own in self.going.items():
            in_lane = lambda found, lane=lane: jax.tree.map(lambda leaf: leaf[:, lane], found)
            losses.append(own.dispatched(completed, in_lane(metrics), in_lane(probes), flags, count, stop))
        return np.mean(losses, 0)

    def save(self, completed: int, run) -> None:
        """Makes a checkpoint of every seed that has not ended."""
        for lane, own in self.going.items():
            if own.checkpoints is not None and own.saved_round != completed:
                own.write(completed, seed_state(run, lane))
        if (watch := signals.active()) is not None:
            watch.saved()

    def unsaved(self) -> None:
        """Tells that rounds have been computed since the last checkpoint."""
        for own in self.journals.values():
            own.unsaved()

    def end_if_interrupted(self, completed: int, run, ended: bool) -> None:
        """Saves the states after so many rounds and raises Interrupted, if Ctrl-C or SIGTERM was heard.

        Args:
          completed: the rounds.
          run: the state of all lanes.
          ended: all seeds end here because they diverged.
        """
        watch = signals.active()
        if watch is None or not watch.requested or all(own.checkpoints is None for own in self.journals.values()):
            return
        if ended:
            raise signals.Interrupted(watch.requested, "interrupted; the same command resumes.")
        self.save(completed, run)
        raise signals.Interrupted(
            watch.requested, f"interrupted; saved after round {completed}, the same command resumes there."
        )

    def note(self, loss: float) -> str:
        """Returns loss and latest accuracies for the progress line, means over the seeds that have not ended."""
        return noted(loss, [own.lines[-1] for own in (self.going or self.journals).values() if own.lines])


def check_processes(config: Config) -> None:
    """Raises UserError where several processes would have to train several seeds at once, or strategies be timed."""
    if group_size(config) == 1:
        return
    if multi_process.count() > 1:
        raise _refused(config, f"works in one process, and there are {multi_process.count()}", "leave it out")
    if config.strategy == "auto":
        raise _refused(config, "does not go with strategy=auto, which times one seed", "name one: --strategy=vmapped")


def check(prepared: PreparedRun, strategy: Strategy) -> None:
    """Checks that the seeds of a run can train at once.

    Args:
      prepared: the prepared run.
      strategy: how cohorts are mapped.

    Raises:
      UserError: they can't.
    """
    config, rounds = prepared.config, prepared.config.rounds_per_dispatch
    if group_size(config) == 1:
        return
    if strategy.mesh is not None:
        raise _refused(config, f"needs one device, and strategy={strategy} has several", "set --strategy=vmapped")
    if should_stream(next(iter(prepared.federations.values())), config.examples):
        raise _refused(config, "needs all examples on the device, where they don't go", "set --examples=device")
    places = {
        "table": ("clients' rows", table_slots(prepared, strategy, rounds)[1]),
        "window": ("windows", window_plan(prepared, rounds).kind),
    }
    for flag, (what, kind) in places.items():
        if kind != "device":
            raise _refused(config, f"needs {what} on the device, and they are in the {kind}", f"set --{flag}=device")
    shapes = {
        seed: jax.tree.map(lambda leaf: leaf.shape, found.shapes().info) for seed, found in prepared.federations.items()
    }
    first = config.seeds[0]
    for seed, shape in shapes.items():
        if shape != shapes[first]:
            raise _refused(
                config,
                f"can't be: clients of the seeds {first} and {seed} differ in what they are told",
                "set --partition_seed",
            )


def _refused(config: Config, why: str, remedy: str) -> UserError:
    return UserError(f"seeds_at_once={config.seeds_at_once} {why}; {remedy}, or --seeds_at_once=1.")


class SeedRunner:
    """The seeds of a run.

    Args:
      program: what is run.
      directory: the run's.
      logbook: None in a process that has no run directory.
      quiet: show no progress.
      say: prints a line.
    """

    def __init__(
        self,
        program: Program,
        directory: pathlib.Path,
        logbook: MetricsLog | None,
        quiet: bool,
        say: Callable[[str], None],
    ):
        self.program, self.directory, self.logbook = program, directory, logbook
        self.quiet, self.say = quiet, say

    def train(self) -> dict[int, Result]:
        """Trains all of them, each from its newest checkpoint if there is one; returns seed -> what became of it."""
        found: dict[int, Result] = {}
        for group in seed_groups(self.program.prepared.config):
            found |= {seed: self._alone(seed) for seed in group} if self.program.lanes == 1 else self._together(group)
        return found

    def _alone(self, seed: int) -> Result:
        program, prepared = self.program, self.program.prepared
        with contextlib.ExitStack() as closed:
            examples = closed.enter_context(contextlib.closing(program.examples(seed)))
            schedule, evaluated_on = program.schedule(examples), program.evaluated_on(seed)
            self.say(f"seed {seed}: {estimate(prepared, program.strategy, seed)}")
            (run, rows, journal), _ = self._begun(seed, schedule, lambda: evaluated_on, closed, placed=True)
            cohorts = CohortSchedule(prepared.federations[seed], schedule, program.strategy, seed)
            parts = Parts(program.dispatch, evaluated_on, examples, rows, cohorts)
            result = train_seed(run, parts, journal, None if self.quiet else seeds_label([seed]))
        if examples.waited:
            self.say(f"seed {seed}: {examples.waited:.2f} s of {result.seconds:.1f} s were spent waiting for examples")
        result.run = None  # the next seed needs its memory
        return result

    def _together(self, seeds: Sequence[int]) -> dict[int, Result]:
        program = self.program
        self.say(f"{seeds_label(seeds)}: {estimate(program.prepared, program.strategy, seeds[0])}")
        working, journals = VmappedInputs(program, seeds), {}
        group = VmappedSeeds(program, working, self.quiet)
        with contextlib.ExitStack() as closed:
            for lane, seed in enumerate(seeds):
                evaluated_on = lambda seed=seed: program.evaluated_on(seed)
                begun, fresh = self._begun(seed, working.schedule, evaluated_on, closed, placed=False)
                journals[seed], rows = begun.journal, begun.rows
                group.add(lane, begun, fresh)
                del begun  # its state is in its lane, or in a checkpoint
            dispatches = group.train(rows)
            for journal in journals.values():
                journal.ended()
        return {seed: result_of(journal, None, dispatches) for seed, journal in journals.items()}

    def _begun(
        self, seed: int, schedule: Schedule, evaluated_on: Callable[[], Any], closed: contextlib.ExitStack, placed: bool
    ) -> tuple[PreparedSeed, bool]:
        """Returns a seed that is ready to train, and whether it begins now.

        Args:
          seed: which one.
          schedule: when what happens.
          evaluated_on: returns what a state that begins is evaluated on.
          closed: closes what has to be.
          placed: whether a state that comes from a checkpoint is placed; one that begins is.
        """
        program, prepared, strategy = self.program, self.program.prepared, self.program.strategy
        config, where = prepared.config, self.directory / "checkpoints" / f"seed_{seed}"
        own = (
            Checkpoints(where, config.keep_checkpoints, config.keep_rounds)
            if multi_process.is_first()
            else NoCheckpoints()
        )
        checkpoints: Any = closed.enter_context(contextlib.closing(own))
        slots, kind = program.slots(schedule.longest)
        # What a checkpoint may replace is not made: one row says what all are like.
        run = prepared.start(seed, 1 if kind == "device" else slots, window_rounds=schedule.window_rounds)
        rows = closed.enter_context(contextlib.closing(program.rows(seed, run, slots, kind, checkpoints)))
        run, saved, _ = starting_state(program, seed, rows, checkpoints, self.logbook, run, self.say)
        about = saved or {}
        if placed or saved is None:
            run = strategy.place(run, strategy.placement(run))
        down, up = (config.clients_per_round * each for each in program.bytes_per_client)
        journal = Journal(
            seed,
            self.logbook,
            checkpoints,
            rows,
            bytes_per_round=(down, up),
            seconds=about.get("seconds", 0.0),
            compile_seconds=about.get("compile_seconds", 0.0),
            steady=about.get("steady", (0, 0.0)),
            diverged_at=about.get("diverged_at"),
        )
        if saved is None:
            journal.evaluated(int(run.round), program.first_evaluation(run, evaluated_on()), None)
            journal.save(int(run.round), run)
        return PreparedSeed(run, rows, journal), saved is None
