"""Times processes in turns (A B C A B C ...), so that other load on the machine affects all of them equally."""

import contextlib
import dataclasses
import json
import math
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

# The thread pool of the previous turn may spin for a moment.
PAUSE = 0.25
MOST_ROUNDS = 400


class Effort(NamedTuple):
    """How long to measure.

    Attributes:
      turn_seconds: seconds of a turn, which has at least one round.
      case_seconds: turns are cut to about this much per case, but never below 3.
      start_seconds: contestants that have not started by then are left out.
    """

    turns: int
    turn_seconds: float
    case_seconds: float
    start_seconds: float = math.inf


class Contestant(NamedTuple):
    """A process to time; `request` is its first line of input."""

    label: str
    command: list[str]
    request: Mapping[str, Any]
    variables: Mapping[str, str] = {}


class PeerFailed(RuntimeError):
    """A contestant ended; the text is the last line of its errors."""


class Process:
    """A running contestant."""

    memory = 0  # the most bytes that it has used, if it says so

    def __init__(self, contestant: Contestant):
        self._errors = tempfile.TemporaryFile("w+", errors="replace")
        self._process = subprocess.Popen(
            contestant.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True,
            env=os.environ | contestant.variables,
        )  # fmt: skip
        assert self._process.stdin is not None and self._process.stdout is not None
        self._requests, self._answers = self._process.stdin, self._process.stdout
        self._write(json.dumps(contestant.request))

    def _write(self, line: str) -> None:
        with contextlib.suppress(BrokenPipeError):  # the answer says why
            print(line, file=self._requests, flush=True)

    def _answer(self) -> dict:
        line = self._answers.readline()
        if line:
            return json.loads(line)
        self._process.wait()
        self._errors.seek(0)
        lines = [line for line in self._errors.read().splitlines() if line.strip()]
        raise PeerFailed(lines[-1] if lines else f"ended with status {self._process.returncode}")

    def ready(self) -> str:
        """Waits until the contestant is ready and returns its version; raises PeerFailed."""
        return self._answer()["version"]

    def train(self, rounds: int) -> float:
        """Trains some rounds and returns the seconds of each; raises PeerFailed."""
        self._write(str(rounds))
        answer = self._answer()
        self.memory = answer.get("memory", 0)
        return answer["seconds"] / rounds

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.wait()
        self._answers.close()
        with contextlib.suppress(BrokenPipeError):
            self._requests.close()
        self._errors.close()


@dataclasses.dataclass
class Timing:
    """Measurements of a contestant: seconds per round, one for each turn, and the most bytes that it has used."""

    version: str
    seconds: list[float] = dataclasses.field(default_factory=list)
    memory: int = 0

    def summary(self, first: "Timing") -> dict[str, Any]:
        """Returns a table's numbers: milliseconds of a round, and the median ratio to the first contestant's."""
        quartiles = self.seconds * 2 if len(self.seconds) < 2 else self.seconds
        low, median, high = statistics.quantiles(quartiles, n=4, method="inclusive")
        ratio = statistics.median(a / b for a, b in zip(self.seconds, first.seconds))
        return {
            "ms_per_round": 1e3 * median, "quartiles_ms": [1e3 * low, 1e3 * high], "turns": len(self.seconds),
            "times_first": ratio, "version": self.version, "memory": self.memory,
        }  # fmt: skip


def take_turns(
    contestants: Iterable[Contestant], effort: Effort, say: Callable[[str], None]
) -> tuple[dict[str, Timing], dict[str, str]]:
    """Starts contestants, lets each compile, and times them in turns; those that fail are left out.

    Returns:
      (label -> Timing, label -> reason of those that were left out).
    """
    running: dict[str, Process] = {}
    rounds: dict[str, int] = {}
    timings: dict[str, Timing] = {}
    failed: dict[str, str] = {}
    lap, started = 0.0, time.monotonic()

    def leave_out(label: str, error: PeerFailed) -> None:
        failed[label] = str(error)
        timings.pop(label, None)
        running.pop(label).close()
        say(f"  {label}: absent ({error})")

    try:
        for contestant in contestants:
            label = contestant.label
            if time.monotonic() - started > effort.start_seconds:
                failed[label] = "no time left"
                continue
            process = running[label] = Process(contestant)
            try:
                version = process.ready()
                process.train(1)  # compiles
                pace = process.train(1)
                rounds[label] = max(1, min(MOST_ROUNDS, int(effort.turn_seconds / max(pace, 1e-9))))
                if rounds[label] > 1:
                    process.train(rounds[label])
            except PeerFailed as error:
                leave_out(label, error)
                continue
            timings[label] = Timing(version)
            lap += rounds[label] * pace + PAUSE
            say(f"  {label}: {version}, {pace * 1e3:.1f} ms")
        turns = max(min(3, effort.turns), min(effort.turns, int(effort.case_seconds / max(lap, 1e-9))))
        for turn in range(turns):
            for label in list(timings):
                time.sleep(PAUSE)
                try:
                    timings[label].seconds.append(running[label].train(rounds[label]))
                    timings[label].memory = running[label].memory
                except PeerFailed as error:
                    leave_out(label, error)
            done = "  ".join(f"{label} {timing.seconds[-1] * 1e3:.1f}" for label, timing in timings.items())
            say(f"  turn {turn + 1}/{turns}, ms per round: {done}")
    finally:
        for process in running.values():
            process.close()
    return timings, failed
