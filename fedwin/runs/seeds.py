"""Training the seeds of a run, one after the other or several at once."""

import contextlib
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

from fedwin import multi_process
from fedwin.runs import groups
from fedwin.runs.beginning import beginning
from fedwin.runs.checkpoint import Checkpoints
from fedwin.runs.estimate import estimate
from fedwin.runs.journal import Journal
from fedwin.runs.lanes import Begun, Group, Lanes
from fedwin.runs.logbook import Logbook
from fedwin.runs.loop import Parts, Result, result_of, train_seed
from fedwin.runs.program import Program
from fedwin.runs.schedule import CohortSchedule, Schedule
from fedwin.runs.together import Elsewhere


class Seeds:
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
        logbook: Logbook | None,
        quiet: bool,
        say: Callable[[str], None],
    ):
        self.program, self.directory, self.logbook = program, directory, logbook
        self.quiet, self.say = quiet, say

    def train(self) -> dict[int, Result]:
        """Trains all of them, each from its newest checkpoint if there is one; returns seed -> what became of it."""
        found: dict[int, Result] = {}
        for group in groups.groups(self.program.trial.config):
            found |= {seed: self._alone(seed) for seed in group} if self.program.lanes == 1 else self._together(group)
        return found

    def _alone(self, seed: int) -> Result:
        program, trial = self.program, self.program.trial
        with contextlib.ExitStack() as closed:
            examples = closed.enter_context(contextlib.closing(program.examples(seed)))
            schedule, evaluated_on = program.schedule(examples), program.evaluated_on(seed)
            self.say(f"seed {seed}: {estimate(trial, program.strategy, seed)}")
            (run, rows, journal), _ = self._begun(seed, schedule, lambda: evaluated_on, closed, placed=True)
            cohorts = CohortSchedule(trial.federations[seed], schedule, program.strategy, seed)
            parts = Parts(program.dispatch, evaluated_on, examples, rows, cohorts)
            result = train_seed(run, parts, journal, None if self.quiet else groups.label([seed]))
        if examples.waited:
            self.say(f"seed {seed}: {examples.waited:.2f} s of {result.seconds:.1f} s were spent waiting for examples")
        result.run = None  # the next seed needs its memory
        return result

    def _together(self, seeds: Sequence[int]) -> dict[int, Result]:
        program = self.program
        self.say(f"{groups.label(seeds)}: {estimate(program.trial, program.strategy, seeds[0])}")
        working, journals = Lanes(program, seeds), {}
        group = Group(program, working, self.quiet)
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
    ) -> tuple[Begun, bool]:
        """Returns a seed that is ready to train, and whether it begins now.

        Args:
          seed: which one.
          schedule: when what happens.
          evaluated_on: returns what a state that begins is evaluated on.
          closed: closes what has to be.
          placed: whether a state that comes from a checkpoint is placed; one that begins is.
        """
        program, trial, strategy = self.program, self.program.trial, self.program.strategy
        config, where = trial.config, self.directory / "checkpoints" / f"seed_{seed}"
        own = (
            Checkpoints(where, config.keep_checkpoints, config.keep_rounds) if multi_process.is_first() else Elsewhere()
        )
        checkpoints: Any = closed.enter_context(contextlib.closing(own))
        slots, kind = program.slots(schedule.longest)
        # What a checkpoint may replace is not made: one row says what all are like.
        run = trial.start(seed, 1 if kind == "device" else slots, window_rounds=schedule.window_rounds)
        rows = closed.enter_context(contextlib.closing(program.rows(seed, run, slots, kind, checkpoints)))
        run, saved, _ = beginning(program, seed, rows, checkpoints, self.logbook, run, self.say)
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
        return Begun(run, rows, journal), saved is None
