"""The training loop: runs dispatches of rounds, records evaluations, saves checkpoints."""

import contextlib
import dataclasses
import time
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from fedwin import engine
from fedwin.residence.examples import TrainingExamples
from fedwin.residence.rows import ClientTable
from fedwin.runs.journal import Evaluations, Metrics
from fedwin.runs.progress import DispatchLength, Progress, compile_seconds
from fedwin.runs.schedule import CohortSource


class Recorder(Protocol):
    """Records the results of a training loop: a Journal, or the GroupJournal of vmapped seeds."""

    def ended(self, stop: bool) -> bool:
        """Whether no seed trains further: each was stopped by a callback, or diverged and `stop`."""

    def add_time(self, rounds: int, seconds: float, compiling: float) -> None:
        """Adds the duration of a dispatch, and how much of it was compilation."""

    def record(
        self,
        completed: int,
        metrics: Metrics,
        evaluations: Evaluations,
        flags: np.ndarray,
        count: int,
        stop: bool,
        clients: Any = None,
    ) -> np.ndarray:
        """Writes the evaluations of a dispatch of `count` rounds; returns the training loss of every round [R_max]."""

    def save(self, completed: int, run: engine.RunState) -> None:
        """Saves a checkpoint of the state after `completed` rounds."""

    def save_stopped(self, completed: int, run: engine.RunState) -> None:
        """Saves the states of the seeds that a callback stopped after `completed` rounds."""

    def mark_unsaved(self) -> None:
        """Notes that rounds have been computed since the last checkpoint."""

    def end_if_interrupted(self, completed: int, run: engine.RunState, ended: bool) -> None:
        """Saves the state and raises Interrupted if a signal was received."""

    def progress_note(self, loss: float) -> str:
        """Returns loss and latest accuracies for the progress line."""


class DispatchFunction(Protocol):
    """A compiled loop over the rounds of a dispatch: engine.Dispatch or engine.VmappedDispatch."""

    def __call__(
        self,
        run: engine.RunState,
        store: Any,
        cohorts: engine.Cohort,
        test: Any,
        rounds: int,
        flags: np.ndarray,
        /,
        n_max: int,
    ) -> tuple[engine.RunState, Metrics, Evaluations]:
        """Returns the state after `rounds` rounds, their metrics and evaluations."""


@dataclasses.dataclass(frozen=True)
class Parts:
    """The inputs of a dispatch besides the state.

    Attributes:
      dispatch: the compiled loop over rounds.
      test: placed batches that read-outs are evaluated on.
      examples: the clients' training examples.
      rows: the table of client states.
      cohorts: which clients take part in which round.
      evaluate_clients: state -> the journal's argument `clients`, an evaluation on each client's own examples.
    """

    dispatch: DispatchFunction
    test: Any
    examples: TrainingExamples
    rows: ClientTable
    cohorts: CohortSource
    evaluate_clients: Callable[[engine.RunState], Any] = lambda run: None


class DispatchOutcome(NamedTuple):
    """The results of a dispatch on the host, and its duration.

    Attributes:
      metrics: name -> Mean with leading axis [R_max].
      evaluations: read-out -> metric -> values [R_max].
      flags: which of its rounds were evaluated, bool [R_max].
      seconds: from taking examples and client rows to writing the rows back.
      compiling: how much of that was compilation.
    """

    metrics: Metrics
    evaluations: Evaluations
    flags: np.ndarray
    seconds: float
    compiling: float


class Driver:
    """Runs one dispatch after another and holds the state in between.

    A dispatch has two steps, so that the caller can plan and prefetch the next one between them: `load` takes its
    examples and client rows, `execute` runs it. Training, dry runs and the choice of a strategy all use this class.

    Args:
      run: a placed state (donated), of one seed or of several vmapped ones.
      parts: inputs of dispatches.

    Attributes:
      run: the state after the latest dispatch.
    """

    def __init__(self, run: engine.RunState, parts: Parts):
        self.run, self.parts = run, parts
        self._loaded: tuple[Any, engine.Cohort, np.ndarray, int, int] | None = None
        self._started, self._compiled = 0.0, 0.0

    def load(self, completed: int, end: int, evaluated: Callable[[int], bool]) -> None:
        """Loads the examples and rows of rounds `completed` .. `end` - 1; the time of the dispatch starts here.

        Args:
          completed: rounds before the dispatch.
          end: rounds after it.
          evaluated: completed rounds -> whether the model is evaluated then.
        """
        cohorts, n_max = self.parts.cohorts.cohorts(completed, end)
        flags = np.zeros(len(cohorts.ids), bool)
        flags[: end - completed] = [evaluated(after + 1) for after in range(completed, end)]
        self._started, self._compiled = time.monotonic(), compile_seconds()
        store, addresses = self.parts.examples.load(cohorts)
        self.run, slots = self.parts.rows.load(self.run, cohorts, end - completed)
        self._loaded = store, cohorts._replace(rows=addresses, slots=slots), flags, end - completed, n_max

    def prefetch(self, completed: int, end: int) -> None:
        """Starts to read examples and rows of rounds `completed` .. `end` - 1, while an earlier dispatch runs."""
        cohorts, _ = self.parts.cohorts.cohorts(completed, end)
        self.parts.examples.prefetch(cohorts)
        self.parts.rows.prefetch(cohorts, end - completed)

    def execute(self) -> DispatchOutcome:
        """Runs the dispatch that was loaded, waits for it, and writes client rows back."""
        assert self._loaded is not None
        (store, cohorts, flags, rounds, n_max), self._loaded = self._loaded, None
        self.run, metrics, evaluations = self.parts.dispatch(
            self.run, store, cohorts, self.parts.test, rounds, flags, n_max=n_max
        )
        del store  # its memory is free for the examples of the next dispatch
        metrics, evaluations = jax.device_get((metrics, evaluations))
        self.parts.rows.write_back(self.run)
        seconds = time.monotonic() - self._started
        return DispatchOutcome(metrics, evaluations, flags, seconds, compile_seconds() - self._compiled)


def train(
    run: engine.RunState, parts: Parts, journal: Recorder, label: str | None, completed: int
) -> tuple[engine.RunState, int]:
    """Trains to the last round, or until every seed has ended; returns the state and the number of dispatches.

    Args:
      run: a placed state (donated), of one seed or of several vmapped ones.
      parts: inputs of dispatches.
      journal: records evaluations and checkpoints.
      label: start of progress lines; None shows no progress.
      completed: rounds that the state has completed.
    """
    schedule, dispatches = parts.cohorts.schedule, 0
    driver = Driver(run, parts)
    del run  # the driver alone holds the state, so that its client rows are freed when others replace them
    with contextlib.closing(Progress(label, schedule.num_rounds, completed)) as progress:
        length = DispatchLength(schedule.rounds_per_dispatch, progress.patience)
        finished = lambda: journal.ended(schedule.stop_on_divergence)
        end = schedule.dispatch_end(completed, length.next_rounds())
        while completed < schedule.num_rounds and not finished():
            driver.load(completed, end, schedule.evaluated)
            following = schedule.dispatch_end(end, length.next_rounds())
            if end < schedule.num_rounds:
                # Before the launch, because not every backend returns from that at once.
                driver.prefetch(end, following)
            if dispatches:  # the first dispatch compiles for an unknown time; a signal need not wait for it
                journal.mark_unsaved()
            outcome, rounds = driver.execute(), end - completed
            journal.add_time(rounds, outcome.seconds, outcome.compiling)
            length.add(rounds, outcome.seconds - outcome.compiling)
            dispatches += 1
            journal.mark_unsaved()
            clients = parts.evaluate_clients(driver.run) if schedule.clients_evaluated(end) else None
            measured = outcome.metrics, outcome.evaluations, outcome.flags
            loss = journal.record(completed, *measured, rounds, schedule.stop_on_divergence, clients)
            progress.update(end, outcome.seconds, outcome.compiling, journal.progress_note(loss[rounds - 1]))
            completed, end = end, following
            journal.save_stopped(completed, driver.run)
            if schedule.checkpointed(completed) and not finished():
                journal.save(completed, driver.run)
            journal.end_if_interrupted(completed, driver.run, ended=finished())
    return driver.run, dispatches
