"""Seeds that train at once: each has a lane of one compiled program, and is in no other as long as the run lasts."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from fedwin import engine
from fedwin.residence import lanes
from fedwin.residence.examples import Resident
from fedwin.runs import groups
from fedwin.runs.journal import Journal
from fedwin.runs.journals import Journals
from fedwin.runs.loop import Parts, train
from fedwin.runs.program import Program
from fedwin.runs.schedule import CohortSchedule, LaneCohorts, Schedule


class Lanes:
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
        trial, self.number = program.trial, program.lanes
        self.seeds = (*seeds, *(seeds[0] for _ in range(self.number - len(seeds))))
        members: list[Resident] = [program.examples(seed) for seed in self.seeds]
        room = max(len(found.partition.order) for found in trial.federations.values())
        self.examples = lanes.ResidentLanes(members, program.apart, room)
        schedule = program.schedule(self.examples)
        drawn = [CohortSchedule(trial.federations[seed], schedule, program.strategy, seed) for seed in self.seeds]
        self.cohorts = LaneCohorts(drawn, groups.buckets(trial.federations))
        self.evaluated_on = program.evaluated_in_lanes(self.seeds)

    @property
    def schedule(self) -> Schedule:
        """When what happens."""
        return self.cohorts.schedule

    def filled(self, run: engine.RunState) -> engine.RunState:
        """Returns a state with that of one seed in every lane; may be traced."""
        return lanes.filled(run, self.number)


class Begun(NamedTuple):
    """A seed that is ready to train.

    Attributes:
      run: its state, not yet in a lane.
      rows: the residence of its clients' rows.
      journal: its own.
    """

    run: engine.RunState
    rows: Any
    journal: Journal


class Group:
    """Trains the seeds of a group to the end.

    Those that are behind, because a kill came between two seeds' checkpoints, train until they meet the others.

    Args:
      program: what is run.
      working: what the dispatches work with.
      quiet: show no progress.
    """

    def __init__(self, program: Program, working: Lanes, quiet: bool):
        self.program, self.working, self.quiet = program, working, quiet
        self.stop, self.last = working.schedule.stop_on_divergence, working.schedule.num_rounds
        self._run: engine.RunState | None = None
        self._dispatches = 0
        self._going: dict[int, Journal] = {}
        self._waiting: dict[int, tuple[int, Begun]] = {}
        self._completed = 0

    def add(self, lane: int, begun: Begun, fresh: bool) -> None:
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
        self._run = self.working.filled(run) if self._run is None else lanes.put(self._run, run, lane)
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
        journals = Journals(self._going, self.stop)
        assert self._run is not None
        label = None if self.quiet else groups.label([self.working.seeds[lane] for lane in sorted(self._going)])
        self._run, dispatches = train(self._run, parts, journals, label, completed=self._completed, until=until)
        self._dispatches, self._completed = self._dispatches + dispatches, until
        self._going = journals.going if until < self.last else {}
