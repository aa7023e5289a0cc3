"""Trains the seeds of a run: one after the other, or groups of vmapped seeds as one state (--seeds_at_once)."""

import contextlib
import functools
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np

from fedwin import engine, multi_process, tree
from fedwin.callbacks import RunCallbacks
from fedwin.data.federation import Store, buckets_of
from fedwin.residence.examples import ResidentExamples
from fedwin.residence.rings import without_vectors
from fedwin.residence.rows import ClientTable, DeviceTable
from fedwin.residence.saved import has_all_clients, table_template
from fedwin.runs.checkpoint import Checkpoints, Extra, from_leaves, newest_checkpoint
from fedwin.runs.client_evaluations import ClientEvaluations
from fedwin.runs.journal import DIVERGENCE, Journal
from fedwin.runs.metrics_log import MetricsLog
from fedwin.runs.program import Program
from fedwin.runs.schedule import Attendance, CohortSchedule, Schedule
from fedwin.runs.start import fork_round, forked
from fedwin.runs.train import Driver, train
from fedwin.tree import PyTree


def seeds_label(seeds: Sequence[int]) -> str:
    """Returns the name of a group of seeds in progress lines: 'seed 3', 'seeds 0,1,2'."""
    return f"{'seed' if len(seeds) == 1 else 'seeds'} {','.join(map(str, seeds))}"


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


class SeedRunner:
    """Trains the seeds of a run, from their newest checkpoints if they have any.

    Args:
      metrics_log: file of evaluations; None in a process that does not write.
    """

    def __init__(
        self,
        program: Program,
        directory: pathlib.Path,
        metrics_log: MetricsLog | None,
        quiet: bool,
        say: Callable[[str], None],
        callbacks: RunCallbacks,
    ):
        self.program, self.directory, self.metrics_log = program, directory, metrics_log
        self.quiet, self.say, self.callbacks = quiet, say, callbacks
        self.clients = ClientEvaluations(program) if program.prepared.config.eval_clients else None

    def train(self) -> dict[int, Journal]:
        """Trains all seeds; returns seed -> its journal."""
        results: dict[int, Journal] = {}
        for group in self.program.plan.groups:
            with contextlib.ExitStack() as closing:
                if self.program.plan.num_vmapped == 1:
                    results |= {seed: self._train_one(seed, closing) for seed in group}
                else:
                    results |= self._train_group(group, closing)
            for seed in group:
                self._note_end(seed, results[seed])
        return results

    def _note_end(self, seed: int, journal: Journal) -> None:
        if journal.diverged_at is not None:
            self.say(f"seed {seed}: diverged in round {journal.diverged_at}: {DIVERGENCE}.")
        if journal.stopped_at is not None:
            num_rounds = self.program.prepared.config.num_rounds
            self.say(f"seed {seed}: stopped early in round {journal.stopped_at} of {num_rounds}.")
        if empty_rounds := journal.attendance.empty_rounds:
            alone = self.program.prepared.algorithm.steps_without_clients
            effect = "in which the server stepped alone" if alone else "which left the model unchanged"
            self.say(f"seed {seed}: no client took part in {empty_rounds} rounds, {effect}.")

    def _train_one(self, seed: int, closing: contextlib.ExitStack) -> Journal:
        program, strategy = self.program, self.program.strategy
        examples = closing.enter_context(contextlib.closing(program.examples(seed)))
        schedule, test = program.schedule(examples), program.evaluation_data(seed)
        cohorts = program.prepared.cohorts(seed, schedule, strategy)
        checkpoints = self._checkpoints(f"seed_{seed}", closing)
        start, rows = self._start(seed, schedule, checkpoints, closing)
        run = strategy.place(start.run, strategy.placement(start.run))
        journal = self._journal(seed, cohorts, int(run.round), start.extra, start.resumed, checkpoints, rows)
        self._note_past([seed], int(run.round), checkpoints)
        if not start.resumed:
            self._record_start(journal, run, test)
            journal.save(int(run.round), run)
        evaluate = closing.enter_context(self.clients.of(seed)) if self.clients is not None else None
        driver, completed = Driver(run, program.dispatch, test, examples, rows, cohorts), int(run.round)
        del run  # the driver alone holds the state, so that its client rows are freed when others replace them
        train(driver, journal, None if self.quiet else seeds_label([seed]), completed, evaluate)
        journal.finish()
        if examples.waited:
            self.say(f"seed {seed}: {examples.waited:.2f} s of {journal.seconds:.1f} s were spent waiting for examples")
        return journal

    def _checkpoints(self, folder: str, closing: contextlib.ExitStack) -> Checkpoints:
        config = self.program.prepared.config
        found = Checkpoints(self.directory / "checkpoints" / folder, config.keep_checkpoints, config.keep_rounds)
        return closing.enter_context(contextlib.closing(found))

    def _note_past(self, seeds: Sequence[int], completed: int, checkpoints: Checkpoints) -> None:
        """Says which of --keep_rounds can't be kept: they are over, and have no checkpoint."""
        without = sorted({*self.program.prepared.config.keep_rounds}.difference(checkpoints.rounds()))
        if past := ", ".join(str(round) for round in without if round < completed):
            self.say(f"note: {seeds_label(seeds)}: --keep_rounds is too late for round {past}: it has no checkpoint.")

    def _start(
        self, seed: int, schedule: Schedule, checkpoints: Checkpoints, closing: contextlib.ExitStack
    ) -> tuple[StartingState, ClientTable]:
        """Returns the state that a seed starts from, not placed, the same in all processes, and its client table.

        Removes evaluations of later rounds.
        """
        program, plan = self.program, self.program.plan
        slots = plan.slots(schedule.longest)
        # On the device one row is enough to describe the table, which a checkpoint may replace.
        described = 1 if plan.table == "device" else slots
        fresh = program.prepared.start(seed, described, window_rounds=schedule.window_rounds)
        rows = closing.enter_context(contextlib.closing(program.rows(seed, fresh, slots, checkpoints)))
        if multi_process.count() == 1:
            return self._in_this_process(seed, rows, checkpoints, fresh), rows
        fresh = self._with_all_slots(seed, rows, fresh)
        start = multi_process.run_on_all(lambda: self._in_this_process(seed, rows, checkpoints, fresh))
        extra, resumed = multi_process.broadcast_object(start[1:])
        if not extra:
            return start, rows
        # Rows that are not on the devices stay in process 0.
        with_rows = plan.table == "device"
        run = multi_process.broadcast_arrays(start.run if with_rows else start.run._replace(table=()))
        return StartingState(run if with_rows else run._replace(table=fresh.table), extra, resumed), rows

    def _in_this_process(
        self, seed: int, rows: ClientTable, checkpoints: Checkpoints, fresh: engine.RunState
    ) -> StartingState:
        """Returns the state that a seed starts from in this process; one row in the table of `fresh` is enough."""
        prepared, config = self.program.prepared, self.program.prepared.config
        if self.metrics_log is None:
            return StartingState(fresh, {})
        lines = self.metrics_log.lines(seed)
        saved = newest_checkpoint(checkpoints, prepared.schedule, lines, [seed], fork_round(config))
        if saved is not None:
            leaves, extra = saved
            if not has_all_clients(leaves):
                fresh = self._with_all_slots(seed, rows, fresh)
            run = rows.restore(from_leaves(leaves, table_template(without_vectors(fresh), leaves)), fresh)
            start = StartingState(run, extra, resumed=True)
            if int(run.round) < config.num_rounds and extra["stopped_at"] is None:
                self.say(f"seed {seed}: resuming after round {int(run.round)}")
        elif config.fork_from:
            begin = functools.partial(prepared.start, window_rounds=self.program.plan.windows.rounds)
            start = StartingState(*forked(config, seed, fresh, rows, begin, self.say))
        else:
            start = StartingState(self._with_all_slots(seed, rows, fresh), {})
            if prepared.initial:
                self.say(f"seed {seed}: starts with {prepared.initial[seed]}")
        self.metrics_log.truncate_after(seed, int(start.run.round) if saved is not None else -1)
        return start

    def _with_all_slots(self, seed: int, rows: ClientTable, fresh: engine.RunState) -> engine.RunState:
        """Returns a fresh state whose table has as many rows as in a dispatch."""
        lengths = [len(leaf) for leaf in jax.tree.leaves(fresh.table)]
        return fresh if lengths[:1] in ([], [rows.slots]) else self.program.with_table(seed, fresh, rows.slots)

    def _journal(
        self,
        seed: int,
        cohorts: CohortSchedule,
        completed: int,
        saved: Extra,
        resumed: bool,
        checkpoints: Checkpoints | None = None,
        rows: ClientTable | None = None,
    ) -> Journal:
        """Returns the journal of a seed that has completed some rounds; `saved` as in StartingState.extra."""
        prepared = self.program.prepared
        seconds = None if prepared.clock is None else functools.partial(prepared.seconds, seed)
        if resumed:
            self.callbacks.resume(seed, lambda: self.metrics_log.lines(seed) if self.metrics_log else [])
        return Journal(
            seed,
            Attendance(cohorts, prepared.bytes_per_client, completed, saved, seconds),
            self.metrics_log,
            checkpoints,
            rows,
            saved=saved,
            callbacks=self.callbacks,
            privacy=prepared.privacy,
            stop=prepared.config.stop_on_divergence,
        )

    def _record_start(self, journal: Journal, run: engine.RunState, test: PyTree) -> None:
        # A seed trains at least until its next evaluation: a stop that a callback returns for this one does not count.
        journal.write_evaluation(int(run.round), self.program.first_evaluation(run, test), None)

    def _train_group(self, seeds: Sequence[int], closing: contextlib.ExitStack) -> dict[int, Journal]:
        inputs = GroupInputs(self.program, seeds)
        checkpoints = self._checkpoints(f"seeds_{','.join(map(str, seeds))}", closing)
        run, saved = self._resumed(inputs, seeds, checkpoints)
        journals: dict[int, Journal] = {}
        for index, seed in enumerate(seeds):
            cohorts = inputs.cohorts.members[index]
            if saved is not None:
                journals[index] = self._journal(seed, cohorts, saved["round"], saved["of_seed"][str(seed)], True)
                continue
            start, _ = self._start(seed, inputs.cohorts.schedule, checkpoints, closing)
            one = self.program.strategy.place(start.run)
            journals[index] = self._journal(seed, cohorts, int(one.round), start.extra, False)
            self._record_start(journals[index], one, self.program.evaluation_data(seed))
            # Only one state of a single seed is in memory at a time.
            run = broadcast_state(one, inputs.num_vmapped) if run is None else set_seed_state(run, one, index)
            del one, start
        assert run is not None
        completed = int(run.round[0])
        self._note_past(seeds, completed, checkpoints)
        finals = {seed: self._checkpoints(f"seed_{seed}", closing) for seed in seeds}
        rows = DeviceTable(self.program.prepared.setting.num_clients)
        journal = GroupJournal(journals, self.metrics_log, checkpoints, rows, finals)
        if saved is None:
            journal.save(completed, run)
        evaluations = [closing.enter_context(self.clients.of(seed)) for seed in seeds] if self.clients else []
        of_active = lambda run: {index: evaluations[index](seed_state(run, index)) for index in journal.active}
        driver = Driver(run, self.program.dispatch, inputs.test, inputs.examples, rows, inputs.cohorts)
        del run
        train(driver, journal, None if self.quiet else seeds_label(seeds), completed, of_active)
        journal.finish()
        return {seed: journals[index] for index, seed in enumerate(seeds)}

    def _resumed(
        self, inputs: "GroupInputs", seeds: Sequence[int], checkpoints: Checkpoints
    ) -> tuple[engine.RunState | None, Extra | None]:
        """Returns the state of the group's newest usable checkpoint, and its JSON data; None, None without one."""
        log, prepared, strategy = self.metrics_log, self.program.prepared, self.program.strategy
        assert log is not None
        lines = [line for seed in seeds for line in log.lines(seed)]
        found = newest_checkpoint(checkpoints, prepared.schedule, lines, seeds, fork_round(prepared.config))
        if found is None:
            return None, None
        (leaves, saved), table = found, DeviceTable(prepared.setting.num_clients)
        fresh = jax.eval_shape(lambda: broadcast_state(prepared.start(seeds[0], table.num_clients), inputs.num_vmapped))
        # Keys in place of their shapes: the checkpoint's are compared with their type.
        keys = jax.random.split(jax.random.key(0, impl="threefry2x32"), inputs.num_vmapped)
        run = from_leaves(leaves, table.checkpoint_form(fresh._replace(key=keys)))
        if not tree.is_empty(run.table):
            run = run._replace(table=run.table.rows)
        for seed in seeds:
            log.truncate_after(seed, saved["round"])
        goes_on = any(of_seed["stopped_at"] is None for of_seed in saved["of_seed"].values())
        if saved["round"] < prepared.config.num_rounds and goes_on:
            self.say(f"{seeds_label(seeds)}: resuming after round {saved['round']}")
        return strategy.place(run, strategy.placement(run)), saved


class GroupJournal(Journal):
    """The journals of a group of vmapped seeds, and their common checkpoints.

    The time of a dispatch is divided among the seeds that train in it, so that their seconds add up to the elapsed
    time, as they do if one seed trains after the other.

    Args:
      members: position on the vmapped axis -> the seed's journal.
      finals: seed -> its own checkpoints, for its last state if a callback stops it.
    """

    def __init__(
        self,
        members: Mapping[int, Journal],
        metrics_log: MetricsLog | None,
        checkpoints: Checkpoints,
        rows: ClientTable,
        finals: Mapping[int, Checkpoints],
    ):
        # Its members count clients and bytes: the attendance given here is not read.
        super().__init__(members[0].seed, members[0].attendance, metrics_log, checkpoints, rows, stop=members[0].stop)
        self.members, self.finals = members, finals

    @property
    def active(self) -> dict[int, Journal]:
        """The journals of the seeds that have not ended."""
        return {index: journal for index, journal in self.members.items() if not journal.ended}

    @property
    def ended(self) -> bool:
        """Whether all seeds have ended."""
        return not self.active

    def record(self, completed, outcome, clients=None) -> None:
        """Writes the evaluations of a dispatch as Journal.record does; losses are means over the seeds.

        `clients` is position on the vmapped axis -> evaluation of its seed's clients.
        """
        active = self.active
        share = outcome._replace(seconds=outcome.seconds / len(active), compiling=outcome.compiling / len(active))
        for index, journal in active.items():
            of_seed = lambda values, index=index: jax.tree.map(lambda leaf: leaf[:, index], values)
            own = share._replace(metrics=of_seed(outcome.metrics), evaluations=of_seed(outcome.evaluations))
            journal.record(completed, own, (clients or {}).get(index))
        self.loss = float(np.mean([journal.loss for journal in active.values()]))
        self.latest = [line for journal in (self.active or self.members).values() for line in journal.latest]

    def saved_extra(self, completed: int) -> Extra:
        """Returns the JSON data that a checkpoint after `completed` rounds holds of the seeds."""
        at_end = lambda journal: min(completed, journal.end or completed)
        members = self.members.values()
        of_seed = {str(journal.seed): journal.saved_extra(at_end(journal)) for journal in members}
        return {"seeds": [journal.seed for journal in members], "of_seed": of_seed, "stop_on_divergence": self.stop}

    def save_stopped(self, completed: int, run: engine.RunState) -> None:
        """Saves the last states of the seeds that a callback stopped after `completed` rounds, and the group."""
        stopped = {index: journal for index, journal in self.members.items() if journal.stopped_at == completed}
        assert self.rows is not None
        for index, journal in stopped.items():
            if completed not in self.finals[journal.seed].rounds():  # it was not killed before the group's checkpoint
                self.flush()
                state = self.rows.checkpoint(seed_state(run, index))
                self.finals[journal.seed].save(completed, state, journal.saved_extra(completed))
        if stopped:
            self.save(completed, run)


class GroupCohorts:
    """The cohorts of several vmapped seeds.

    Args:
      members: one CohortSchedule per vmapped seed.
      buckets: client sizes that cohorts are padded to, ascending.
    """

    def __init__(self, members: Sequence[CohortSchedule], buckets: Sequence[int]):
        self.members, self.buckets = members, buckets

    @property
    def schedule(self) -> Schedule:
        """The rounds, the same for all seeds."""
        return self.members[0].schedule

    def cohorts(self, completed: int, end: int) -> tuple[engine.Cohort, int]:
        """Returns (cohorts [R_max, seeds, width], n_max) of rounds `completed` .. `end` - 1.

        Seeds that have ended count, too, so that a seed always trains in the same compiled program.
        """
        largest = max(member.federation.most(member.block(completed).participants) for member in self.members)
        drawn = [member.cohorts(completed, end)[0] for member in self.members]
        together = jax.tree.map(lambda *leaves: np.stack(leaves, 1), *drawn)
        return together, next(bucket for bucket in self.buckets if bucket >= largest)


def with_indices(stores: Sequence[Store], capacity: int) -> Store:
    """Returns one store of vmapped seeds: the examples once, and an index of `capacity` entries per seed."""
    full = lambda order: jnp.pad(order, (0, capacity - len(order)))
    padded = [store._replace(examples={}, order=full(store.order)) for store in stores]
    stacked: Store = jax.tree.map(lambda *leaves: jnp.stack(leaves), *padded)
    return stacked._replace(examples=stores[0].examples)


class GroupInputs:
    """Examples, cohorts and test data of a group of vmapped seeds.

    The vmapped axis always has the same length, however many seeds are still training: a seed computes the same bits
    whether the others have ended or not. Unused positions repeat the first seed.

    Args:
      seeds: the group, at most as many as the vmapped axis is long.

    Attributes:
      test: data that read-outs are evaluated on.
    """

    def __init__(self, program: Program, seeds: Sequence[int]):
        prepared, self.num_vmapped = program.prepared, program.plan.num_vmapped
        padded = (*seeds, *(seeds[0] for _ in range(self.num_vmapped - len(seeds))))
        self.examples, *others = [cast(ResidentExamples, program.examples(seed)) for seed in padded]
        if program.partitions_differ:
            capacity = max(len(federation.partition.order) for federation in prepared.federations.values())
            self.examples.store = with_indices([each.store for each in (self.examples, *others)], capacity)
        schedule = program.schedule(self.examples)
        drawn = [prepared.cohorts(seed, schedule, program.strategy) for seed in padded]
        sizes = np.concatenate([federation.sizes for federation in prepared.federations.values()])
        self.cohorts = GroupCohorts(drawn, buckets_of(sizes))
        self.test = program.vmapped_evaluation_data(padded)


@functools.partial(jax.jit, static_argnums=1)
def broadcast_state(run: engine.RunState, num_vmapped: int) -> engine.RunState:
    """Returns a vmapped state [num_vmapped, ...] with `run` at every position."""
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (num_vmapped, *leaf.shape)), run)


@functools.partial(jax.jit, donate_argnums=0)
def set_seed_state(vmapped: engine.RunState, run: engine.RunState, index: int) -> engine.RunState:
    """Returns a vmapped state (donated) with `run` at one position."""
    return jax.tree.map(lambda leaf, value: leaf.at[index].set(value), vmapped, run)


@jax.jit
def seed_state(vmapped: engine.RunState, index: int) -> engine.RunState:
    """Returns a copy of the state at one position of a vmapped state."""
    return jax.tree.map(lambda leaf: leaf[index], vmapped)
