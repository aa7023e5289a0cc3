"""The training loop: runs dispatches of rounds, records evaluations, saves checkpoints, shows progress."""

import contextlib
import functools
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.monitoring
import numpy as np
from tqdm import tqdm

from fedwin import engine, multi_process
from fedwin.residence.examples import TrainingExamples
from fedwin.residence.rows import ClientTable
from fedwin.runs.journal import DispatchOutcome, Journal
from fedwin.runs.schedule import CohortSource
from fedwin.tree import PyTree

# Maximum seconds of a dispatch. True: on a terminal, whose bar should move. False: otherwise, so that a process that
# has 30 s to end, as after SLURM's SIGTERM, can finish its dispatch and save.
PATIENCE = {True: 2.0, False: 10.0}
# The share of these seconds that a dispatch is planned for: clients differ in size, and the machine may be shared.
PLANNED_SHARE = 0.7

_COMPILING = ("/jax/core/compile/backend_compile_duration", "/jax/core/compile/jaxpr_to_mlir_module_duration")


class Driver:
    """Runs one dispatch after another and holds the state in between.

    A dispatch has two steps, so that the caller can plan and prefetch the next one between them: `load` takes its
    examples and client rows, `execute` runs it. Training, dry runs and the choice of a strategy all use this class.

    Args:
      run: a placed state (donated), of one seed or of several vmapped ones.
      dispatch: the compiled loop over rounds.
      test: placed batches that read-outs are evaluated on.
      examples: the clients' training examples.
      rows: the table of client states.
      cohorts: which clients take part in which round.

    Attributes:
      run: the state after the latest dispatch.
    """

    def __init__(
        self,
        run: engine.RunState,
        dispatch: engine.Dispatch,
        test: PyTree,
        examples: TrainingExamples,
        rows: ClientTable,
        cohorts: CohortSource,
    ):
        self.run, self.dispatch, self.test = run, dispatch, test
        self.examples, self.rows, self.cohorts = examples, rows, cohorts
        self._loaded: tuple[PyTree, engine.Cohort, np.ndarray, int, int] | None = None
        self._started, self._compiled = 0.0, 0.0

    def load(self, completed: int, end: int, evaluated: Callable[[int], bool]) -> None:
        """Loads the examples and rows of rounds `completed` .. `end` - 1; the time of the dispatch starts here.

        The model after a round is evaluated if `evaluated(completed rounds)`.
        """
        cohorts, n_max = self.cohorts.cohorts(completed, end)
        flags = np.zeros(len(cohorts.ids), bool)
        flags[: end - completed] = [evaluated(after + 1) for after in range(completed, end)]
        self._started, self._compiled = time.monotonic(), compile_seconds()
        store, addresses = self.examples.load(cohorts)
        self.run, slots = self.rows.load(self.run, cohorts, end - completed)
        self._loaded = store, cohorts._replace(rows=addresses, slots=slots), flags, end - completed, n_max

    def prefetch(self, completed: int, end: int) -> None:
        """Starts to read examples and rows of rounds `completed` .. `end` - 1, while an earlier dispatch runs."""
        cohorts, _ = self.cohorts.cohorts(completed, end)
        self.examples.prefetch(cohorts)
        self.rows.prefetch(cohorts, end - completed)

    def execute(self) -> DispatchOutcome:
        """Runs the dispatch that was loaded, waits for it, and writes client rows back."""
        assert self._loaded is not None
        (store, cohorts, flags, rounds, n_max), self._loaded = self._loaded, None
        self.run, metrics, evaluations = self.dispatch(self.run, store, cohorts, self.test, rounds, flags, n_max=n_max)
        del store  # its memory is free for the examples of the next dispatch
        metrics, evaluations = jax.device_get((metrics, evaluations))
        self.rows.write_back(self.run)
        seconds = time.monotonic() - self._started
        return DispatchOutcome(metrics, evaluations, flags, rounds, seconds, compile_seconds() - self._compiled)


@functools.cache
def _compilations() -> list[float]:
    """Returns a list to which jax adds the seconds of each lowering and compilation in this process."""
    found: list[float] = []

    def add(event: str, duration_secs: float, **_: str | int) -> None:
        if event in _COMPILING:
            found.append(duration_secs)

    jax.monitoring.register_event_duration_secs_listener(add)
    return found


def compile_seconds() -> float:
    """Returns the seconds spent compiling since the first call of this function."""
    return sum(_compilations())


class DispatchLength:
    """Plans how many rounds a dispatch holds, at most `most`, so that none lasts longer than `patience` seconds.

    A dispatch is planned while the previous one runs, so the first two hold one round each; later ones follow the
    slower of the last two that were timed. The length of dispatches does not change any result.
    """

    def __init__(self, most: int, patience: float):
        self.most, self.patience = most, patience
        self._per_round: list[float] = []

    def next_rounds(self) -> int:
        """Returns the number of rounds of the next dispatch to plan; the same in all processes."""
        mine = 1
        if self._per_round:
            mine = max(1, min(self.most, int(PLANNED_SHARE * self.patience / max(*self._per_round, 1e-9))))
        return int(multi_process.all_gather_integers(mine)[0, 0])

    def add(self, rounds: int, seconds: float) -> None:
        """Records how long a dispatch of `rounds` rounds took without compilation."""
        self._per_round = [*self._per_round[-1:], max(seconds, 0.0) / rounds]


class Progress:
    """A tqdm bar on a terminal, a plain line every few seconds otherwise.

    Args:
      label: start of each line; None prints nothing.
      done: rounds completed before this process started.

    Attributes:
      patience: maximum seconds between two updates.
    """

    def __init__(self, label: str | None, total: int, done: int):
        self.label, self.total = label, total
        self.patience = PATIENCE[sys.stderr.isatty()]
        self._done, self._printed_at = done, time.monotonic()
        self._rounds, self._seconds = 0, 0.0
        self._bar: tqdm | None = None
        if label is not None and sys.stderr.isatty():
            self._bar = tqdm(
                total=total, initial=done, desc=label, unit="round", postfix="compiling", dynamic_ncols=True, ascii="-#"
            )

    def update(self, done: int, seconds: float, compiling: float, note: str) -> None:
        """Shows the progress after a dispatch: its duration and compilation in seconds, loss and accuracies."""
        rounds, self._done = done - self._done, done
        if self._bar is not None:
            self._bar.set_postfix_str(note, refresh=False)
            self._bar.update(rounds)
            self._bar.refresh()
        elif self.label is not None:
            self._print(rounds, seconds, compiling, note)

    def _print(self, rounds: int, seconds: float, compiling: float, note: str) -> None:
        if compiling:
            print(f"{self.label}: compiled in {compiling:.1f} s", file=sys.stderr, flush=True)
        else:
            self._rounds, self._seconds = self._rounds + rounds, self._seconds + seconds
        now = time.monotonic()
        if now - self._printed_at > 5 or self._done == self.total:
            self._printed_at, pace = now, ""
            if self._rounds:
                rate = self._rounds / max(self._seconds, 1e-9)
                shown = f"{rate:.1f} rounds/s" if rate >= 1 else f"{1 / rate:.1f} s/round"
                pace = f"  {shown}  {(self.total - self._done) / rate:.0f} s left"
            print(f"{self.label}: round {self._done}/{self.total}{pace}  {note}", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Leaves the last line as it is."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def train(
    driver: Driver,
    journal: Journal,
    label: str | None,
    completed: int,
    evaluate_clients: Callable[[engine.RunState], Any] | None = None,
) -> None:
    """Trains to the last round, or until every seed has ended.

    Args:
      driver: has the state after `completed` rounds.
      label: start of progress lines; None shows no progress.
      evaluate_clients: state -> the journal's argument `clients`, an evaluation on each client's own examples.
    """
    schedule, is_first = driver.cohorts.schedule, True
    with contextlib.closing(Progress(label, schedule.num_rounds, completed)) as progress:
        length = DispatchLength(schedule.config.rounds_per_dispatch, progress.patience)
        end = schedule.dispatch_end(completed, length.next_rounds())
        while completed < schedule.num_rounds and not journal.ended:
            driver.load(completed, end, schedule.evaluated)
            following = schedule.dispatch_end(end, length.next_rounds())
            if end < schedule.num_rounds:
                # Before the launch, because not every backend returns from that at once.
                driver.prefetch(end, following)
            if not is_first:  # the first dispatch compiles for an unknown time; a signal need not wait for it
                journal.mark_unsaved()
            outcome = driver.execute()
            length.add(outcome.rounds, outcome.seconds - outcome.compiling)
            is_first = False
            journal.mark_unsaved()
            clients = evaluate_clients(driver.run) if evaluate_clients and schedule.clients_evaluated(end) else None
            journal.record(completed, outcome, clients)
            progress.update(end, outcome.seconds, outcome.compiling, journal.progress_note(end))
            completed, end = end, following
            journal.save_stopped(completed, driver.run)
            if schedule.checkpointed(completed) and not journal.ended:
                journal.save(completed, driver.run)
            journal.end_if_interrupted(completed, driver.run)
