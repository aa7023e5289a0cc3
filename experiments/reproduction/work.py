"""Trains the planned runs, each once: time budget, work shared by processes, resuming after interruptions."""

import dataclasses
import signal
import threading
import time
from collections.abc import Callable

from fedwin.errors import UserError
from fedwin.files import InUse
from fedwin.runs import signals

from . import datasets, process_commands
from .plan import RunDirectory

# Seconds after which directories that other processes were training are checked again.
PATIENCE = 5.0


class BudgetSpent(Exception):
    """The time budget is over; everything is saved."""


@dataclasses.dataclass
class Outcome:
    """Result of training several run directories.

    Attributes:
      trained: by this process.
      finished: before, or by other processes.
      rejected: directory -> why fedwin rejects its run.
    """

    trained: list[RunDirectory] = dataclasses.field(default_factory=list)
    finished: list[RunDirectory] = dataclasses.field(default_factory=list)
    refused: dict[str, str] = dataclasses.field(default_factory=dict)

    def covers(self, directories: list[RunDirectory]) -> bool:
        """Whether every directory is finished or rejected."""
        return all(directory.finished or str(directory.path) in self.refused for directory in directories)

    def add(self, more: "Outcome") -> None:
        """Adds the outcome of further directories."""
        self.trained += more.trained
        self.finished += more.finished
        self.refused |= more.refused


def work(
    directories: list[RunDirectory],
    *,
    data_dir: str = "",
    budget: float | None = None,
    scale: str = "",
    say: Callable[[str], None] = print,
) -> Outcome:
    """Trains all runs that are not finished; those that another process is training are checked again later.

    Args:
      directories: of the runs, a run before its forks.
      data_dir: folder of the data sets' files.
      budget: seconds after which the current run is saved and this function stops; None: unlimited.
      scale: smoke, trend or paper; at paper scale a run on incomplete data is rejected.
      say: prints a line.

    Raises:
      BudgetSpent: the time is over.
      Interrupted: Ctrl-C or SIGTERM.
    """
    outcome = Outcome(finished=[directory for directory in directories if directory.finished])
    pending = [directory for directory in directories if not directory.finished]
    progress = _Progress(pending, time.monotonic())
    with _Alarm(budget) as spent:
        while pending:
            advanced = False
            for directory in list(pending):
                if directory.finished:  # by another process
                    pending.remove(directory)
                    outcome.finished.append(directory)
                    advanced = True
                elif str(directory.parent) in outcome.refused:
                    outcome.refused[str(directory.path)] = "the run that it resumes was refused"
                    pending.remove(directory)
                elif directory.ready:
                    say(progress.line(pending, directory))
                    if _train(directory, data_dir, scale, outcome, spent):
                        pending.remove(directory)
                        advanced = True
            if pending and not advanced:
                _wait(spent)
    return outcome


def _train(directory: RunDirectory, data_dir: str, scale: str, outcome: Outcome, spent: threading.Event) -> bool:
    """Trains one directory; returns False if another process is training it."""
    if spent.is_set():
        raise BudgetSpent
    reason = datasets.missing(directory.task.run.config().dataset, data_dir, scale) if scale == "paper" else ""
    if reason:
        outcome.refused[str(directory.path)] = reason
        return True
    try:
        process_commands.train(directory.config(data_dir=data_dir))
    except InUse:
        return False
    except UserError as error:
        outcome.refused[str(directory.path)] = str(error)
        return True
    except signals.Interrupted:
        if spent.is_set():
            raise BudgetSpent from None
        raise
    outcome.trained.append(directory)
    return True


def _wait(spent: threading.Event) -> None:
    process_commands.keep_alive()
    if spent.wait(PATIENCE):
        raise BudgetSpent


class _Progress:
    """Progress over all directories, and the expected time left.

    Args:
      pending: directories to train.
      started: by time.monotonic().
    """

    def __init__(self, pending: list[RunDirectory], started: float):
        self.total, self.started = len(pending), started
        self.rounds = {directory.path: directory.rounds_left() for directory in pending}

    def line(self, pending: list[RunDirectory], directory: RunDirectory) -> str:
        """Returns a line about the directory that is trained next."""
        number = self.total - len(pending) + 1
        left = sum(self.rounds[each.path] for each in pending)
        done = sum(self.rounds.values()) - left
        seconds = time.monotonic() - self.started
        eta = f", about {readable(seconds / done * left)} left" if done else ""
        uses = ", ".join(sorted(directory.task.uses)[:4])
        return f"[{number}/{self.total}{eta}] {directory.task.run.config().algorithm} for {uses}"


def readable(seconds: float) -> str:
    """Returns a duration for people.

    >>> readable(45), readable(720), readable(12600)
    ('45 s', '12 min', '3.5 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


class _Alarm:
    """Context manager that sets an event after some seconds, and asks the current run to save and stop.

    Args:
      seconds: None: never.
    """

    def __init__(self, seconds: float | None):
        self.event = threading.Event()
        self.timer = None if seconds is None else threading.Timer(seconds, self._ring)

    def _ring(self) -> None:
        self.event.set()
        watch = signals.active()
        if watch is not None:
            watch.request(signal.SIGTERM)

    def __enter__(self) -> threading.Event:
        if self.timer is not None:
            self.timer.daemon = True
            self.timer.start()
        return self.event

    def __exit__(self, *_) -> None:
        if self.timer is not None:
            self.timer.cancel()
