"""Trains what tables and figures need: every run once, whoever asks, whatever interrupts."""

import dataclasses
import signal
import threading
import time
from collections.abc import Callable

from fedwin.errors import UserError
from fedwin.files import InUse
from fedwin.runs import signals

from . import together
from .places import Unit

# Seconds between two looks at what other processes are training.
PATIENCE = 5.0


class BudgetSpent(Exception):
    """The time that was given is over; everything is saved."""


@dataclasses.dataclass
class Outcome:
    """What became of the units.

    Attributes:
      trained: by this process.
      found: finished before.
      refused: directory -> why fedwin refuses the run.
    """

    trained: list[Unit] = dataclasses.field(default_factory=list)
    found: list[Unit] = dataclasses.field(default_factory=list)
    refused: dict[str, str] = dataclasses.field(default_factory=dict)

    def covers(self, units: list[Unit]) -> bool:
        """Whether nothing is left to do for any of the units."""
        return all(unit.finished or str(unit.directory) in self.refused for unit in units)

    def add(self, more: "Outcome") -> None:
        """Adds what became of further units."""
        self.trained += more.trained
        self.found += more.found
        self.refused |= more.refused


def work(
    units: list[Unit],
    *,
    data_dir: str = "",
    budget: float | None = None,
    say: Callable[[str], None] = print,
) -> Outcome:
    """Trains all units that are not finished; a unit that another process trains is looked at again later.

    Args:
      units: run directories, a run before its forks.
      data_dir: folder of the data sets' files.
      budget: seconds after which the run under way is saved and this stops; None: no bound.
      say: prints a line.

    Raises:
      BudgetSpent: the time is over.
      Interrupted: Ctrl-C or SIGTERM.
    """
    outcome, begun = Outcome(found=[unit for unit in units if unit.finished]), time.monotonic()
    pending = [unit for unit in units if not unit.finished]
    progress = _Progress(pending, begun)
    with _alarm(budget) as spent:
        while pending:
            moved = False
            for unit in list(pending):
                if unit.finished:  # by another process
                    pending.remove(unit)
                    outcome.found.append(unit)
                    moved = True
                elif str(unit.parent) in outcome.refused:
                    outcome.refused[str(unit.directory)] = "what it goes on from was refused"
                    pending.remove(unit)
                elif unit.ready:
                    say(progress.line(pending, unit))
                    if _train(unit, data_dir, outcome, spent):
                        pending.remove(unit)
                        moved = True
            if pending and not moved:
                _wait(spent)
    return outcome


def _train(unit: Unit, data_dir: str, outcome: Outcome, spent: threading.Event) -> bool:
    """Trains one unit; returns whether there is no more to do for it."""
    if spent.is_set():
        raise BudgetSpent
    try:
        together.run(unit.config(data_dir=data_dir))
    except InUse:
        return False
    except UserError as error:
        outcome.refused[str(unit.directory)] = str(error)
        return True
    except signals.Interrupted:
        if spent.is_set():
            raise BudgetSpent from None
        raise
    outcome.trained.append(unit)
    return True


def _wait(spent: threading.Event) -> None:
    together.wait()
    if spent.wait(PATIENCE):
        raise BudgetSpent


class _Progress:
    """How far the whole is, and when it may be done.

    Args:
      pending: what there is to do.
      begun: when, by time.monotonic().
    """

    def __init__(self, pending: list[Unit], begun: float):
        self.total, self.begun = len(pending), begun
        self.rounds = {unit.directory: unit.rounds_left() for unit in pending}

    def line(self, pending: list[Unit], unit: Unit) -> str:
        """Returns a line about the unit that is begun now."""
        number = self.total - len(pending) + 1
        left = sum(self.rounds[each.directory] for each in pending)
        done = sum(self.rounds.values()) - left
        seconds = time.monotonic() - self.begun
        eta = f", about {readable(seconds / done * left)} left" if done else ""
        uses = ", ".join(sorted(unit.task.uses)[:4])
        return f"[{number}/{self.total}{eta}] {unit.task.run.config().algorithm} for {uses}"


def readable(seconds: float) -> str:
    """Returns a time for people: '45 s', '12 min', '3.5 h'."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


class _alarm:
    """Sets an event after so many seconds, and has the run under way saved and ended.

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
            watch.ask(signal.SIGTERM)

    def __enter__(self) -> threading.Event:
        if self.timer is not None:
            self.timer.daemon = True
            self.timer.start()
        return self.event

    def __exit__(self, *_) -> None:
        if self.timer is not None:
            self.timer.cancel()
