"""Times tasks alternately (A B C A B C ...), so that other load on the machine affects all of them equally."""

import dataclasses
import statistics
import time
from collections.abc import Callable

from .worker import PeerFailed, Worker

# The thread pool of a finished task may spin for a moment.
PAUSE = 0.25
MOST_ROUNDS = 400


@dataclasses.dataclass(frozen=True)
class Effort:
    """How long to measure.

    Args:
      turns: how often each task runs.
      turn_seconds: how long it runs at a time (one round at least).
      case_seconds: turns are cut to about this much per comparison, but never below 3.
    """

    turns: int
    turn_seconds: float
    case_seconds: float


@dataclasses.dataclass(frozen=True)
class TimedTask:
    """A named task in a worker, prepared by `request`."""

    label: str
    worker: Worker
    request: dict


@dataclasses.dataclass
class TaskTiming:
    """Measurements of a task.

    Args:
      seconds: per round, one value per turn.
      cpu: processor seconds per round, one value per turn.
      facts: of the task, at the end.
    """

    seconds: list[float]
    cpu: list[float]
    facts: dict

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def quartiles(self) -> tuple[float, float]:
        if len(self.seconds) < 2:
            return self.median, self.median
        low, _, high = statistics.quantiles(self.seconds, n=4, method="inclusive")
        return low, high

    def ratio(self, other: "TaskTiming") -> float:
        """Returns the time relative to `other`: the median of the ratios over turns."""
        return statistics.median(a / b for a, b in zip(self.seconds, other.seconds))

    def summary(self) -> dict:
        """Returns the numbers for a table or a JSON file."""
        low, high = self.quartiles
        return {
            "ms_per_round": 1e3 * self.median, "quartiles_ms": [1e3 * low, 1e3 * high], "turns": len(self.seconds),
            "rounds_per_second": 1 / self.median, "cpu_ms_per_round": 1e3 * statistics.median(self.cpu),
        }  # fmt: skip


def interleaved(
    tasks: list[TimedTask], effort: Effort, say: Callable[[str], None], failed: dict[str, str] | None = None
) -> dict[str, TaskTiming]:
    """Prepares, warms up and alternately times tasks; tasks that fail are reported and left out.

    Args:
      tasks: to time.
      effort: how long to measure.
      say: called with each line of progress.
      failed: is filled with label -> reason of the tasks that were left out. None: a task that fails after its
        preparation ends the comparison.

    Returns:
      label -> TaskTiming.

    Raises:
      PeerFailed: a task failed after its preparation, and `failed` is None.
    """
    rounds: dict[str, int] = {}
    pace: dict[str, float] = {}
    timings: dict[str, TaskTiming] = {}
    lost = {} if failed is None else failed

    def leave_out(task, error):
        lost[task.label] = str(error)
        timings.pop(task.label, None)
        say(f"  {task.label}: left out ({error})")

    for task in tasks:
        try:
            first, pace[task.label] = _prepared(task)
        except PeerFailed as error:
            leave_out(task, error)
            continue
        rounds[task.label] = max(1, min(MOST_ROUNDS, int(effort.turn_seconds / max(pace[task.label], 1e-9))))
        timings[task.label] = TaskTiming([], [], {})
        say(f"  {task.label}: ready, first round {first:.1f} s, then {pace[task.label] * 1e3:.1f} ms")
    lap = sum(rounds[label] * pace[label] + PAUSE for label in timings)
    turns = max(min(3, effort.turns), min(effort.turns, int(effort.case_seconds / max(lap, 1e-9))))
    for turn in range(turns):
        for task in (task for task in tasks if task.label not in lost):
            time.sleep(PAUSE)
            n = rounds[task.label]
            try:
                answer = task.worker.ask(task=task.label, rounds=n)
            except PeerFailed as error:
                if failed is None:
                    raise
                leave_out(task, error)
                continue
            timings[task.label].seconds.append(answer["seconds"] / n)
            timings[task.label].cpu.append(answer["cpu"] / n)
        done = "  ".join(f"{label} {t.seconds[-1] * 1e3:.1f}" for label, t in timings.items())
        say(f"  turn {turn + 1}/{turns}, ms per round: {done}")
    for task in (task for task in tasks if task.label not in lost):
        timings[task.label].facts = task.worker.ask(facts=task.label)
        task.worker.ask(drop=task.label)
    return timings


def _prepared(task: TimedTask) -> tuple[float, float]:
    """Returns the seconds of the first round, which compiles, and of the second."""
    task.worker.ask(task=task.label, prepare=task.request)
    first = task.worker.ask(task=task.label, rounds=1)["seconds"]
    return first, task.worker.ask(task=task.label, rounds=1)["seconds"]
