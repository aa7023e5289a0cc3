"""The loop over dispatches: cohorts in, evaluations out, checkpoints in between."""

import dataclasses
import time
from typing import Any

import jax
import numpy as np

from fedwin import engine
from fedwin.runs.journal import Journal
from fedwin.runs.progress import DispatchLength, Progress, compile_seconds


@dataclasses.dataclass
class Result:
    """What became of one seed.

    Attributes:
      run: the final state.
      lines: the evaluations of this process.
      diverged_at: the round whose loss was not finite, or None.
      seconds: training time over all processes, compilation included.
      compile_seconds: how much of it was compilation.
      steady: rounds and seconds of the dispatches that compiled nothing.
      dispatches: those of this process.
    """

    run: engine.RunState | None
    lines: list[dict[str, Any]]
    diverged_at: int | None
    seconds: float
    compile_seconds: float
    steady: tuple[int, float]
    dispatches: int


@dataclasses.dataclass(frozen=True)
class Parts:
    """What the loop works with.

    Attributes:
      dispatch: an engine.Dispatch.
      test: placed batches that the probe evaluates on.
      examples: a residence of examples (take, expect).
      rows: a residence of clients' rows (take, expect, give).
      cohorts: who takes part (CohortSchedule, LaneCohorts).
    """

    dispatch: Any
    test: Any
    examples: Any
    rows: Any
    cohorts: Any


def _flags(schedule, completed: int, end: int, length: int) -> np.ndarray:
    """Which of the dispatch's rounds are evaluated, bool [R_max]."""
    flags = np.zeros(length, bool)
    flags[: end - completed] = [schedule.evaluated(after + 1) for after in range(completed, end)]
    return flags


def train_seed(run: engine.RunState, parts: Parts, journal: Journal, label: str | None = None) -> Result:
    """Trains one seed from the rounds that `run` has completed to the last round.

    Args:
      run: a placed state (donated).
      parts: what the loop works with.
      journal: where evaluations and checkpoints go.
      label: what begins progress lines; None = show no progress.
    """
    until = parts.cohorts.schedule.num_rounds
    run, dispatches = train(run, parts, journal, label, completed=int(run.round), until=until)
    journal.ended()
    return result_of(journal, run, dispatches)


def result_of(journal: Journal, run: engine.RunState | None, dispatches: int) -> Result:
    """Returns what became of a seed.

    Args:
      journal: its own.
      run: its final state.
      dispatches: those of this process.
    """
    return Result(
        run, journal.lines, journal.diverged_at, journal.seconds, journal.compile_seconds, journal.steady, dispatches
    )


def train(
    run: engine.RunState, parts: Parts, journal: Any, label: str | None, *, completed: int, until: int
) -> tuple[engine.RunState, int]:
    """Trains until a round, or until the journal says that nothing is left to train; returns (state, dispatches).

    Args:
      run: a placed state (donated), of one seed or of several lanes.
      parts: what the loop works with.
      journal: a Journal, or those of several lanes (runs.journals).
      label: what begins progress lines; None = show no progress.
      completed: rounds that the state has completed.
      until: the round.
    """
    schedule, cohorts, dispatches = parts.cohorts.schedule, parts.cohorts, 0
    progress = Progress(label, schedule.num_rounds, completed)
    pace = DispatchLength(schedule.rounds_per_dispatch, progress.patience)
    finished = lambda: journal.diverged_at is not None and schedule.stop_on_divergence
    end = schedule.dispatch_end(completed, min(pace.wish(), until - completed))
    while completed < until and not finished():
        ids, n_max = cohorts.ids(completed, end)
        flags = _flags(schedule, completed, end, len(ids))
        begun, compiled = time.monotonic(), compile_seconds()
        store, rows = parts.examples.take(ids)
        run, slots = parts.rows.take(run, ids)
        following = schedule.dispatch_end(end, min(pace.wish(), until - end))
        if end < until:
            # Asked for before the launch, because not every backend returns from that at once.
            coming = cohorts.ids(end, following)[0]
            parts.examples.expect(coming)
            parts.rows.expect(coming)
        if dispatches:  # the first one compiles, for who knows how long
            journal.unsaved()
        run, metrics, probes = parts.dispatch(
            run, store, engine.Cohorts(ids, rows, slots), parts.test, end - completed, flags, n_max=n_max
        )
        del store
        metrics, probes = jax.device_get((metrics, probes))
        parts.rows.give(run)
        took = time.monotonic() - begun
        compiling = compile_seconds() - compiled
        journal.took(end - completed, took, compiling)
        pace.took(end - completed, took - compiling)
        dispatches += 1
        journal.unsaved()
        loss = journal.dispatched(completed, metrics, probes, flags, end - completed, schedule.stop_on_divergence)
        progress.update(end, end - completed, took, compiling, journal.note(loss[end - completed - 1]))
        completed, end = end, following
        if schedule.checkpointed(completed) and not finished():
            journal.save(completed, run)
        journal.end_if_interrupted(completed, run, ended=finished())
    progress.close()
    return run, dispatches
