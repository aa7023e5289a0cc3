"""Ctrl-C and SIGTERM: the dispatch under way is finished and saved, then the process ends; a second Ctrl-C ends it now.

Python's own signal handlers wait until XLA returns. A thread that reads the wake-up descriptor does not: it hears of a
signal at once, inside a dispatch or a compilation too.
"""

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(KeyboardInterrupt):
    """A run that a signal ended after its state was saved.

    Args:
      number: the signal.
      message: for the user, one line.
    """

    def __init__(self, number: int, message: str):
        super().__init__(message)
        self.number = number

    @property
    def status(self) -> int:
        """The exit status: 130 after Ctrl-C, 143 after SIGTERM."""
        return 128 + self.number


class Watch:
    """Hears signals in a thread.

    Attributes:
      requested: the first signal that came, or None.
      cleanups: what is done before a signal ends the process at once.
    """

    def __init__(self):
        self.requested: int | None = None
        self._unsaved, self._resumable = False, False
        self.cleanups: list[Callable[[], object]] = []
        self._lock = threading.Lock()
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)
        self._thread = threading.Thread(target=self._listen, daemon=True)

    def _listen(self) -> None:
        while data := self._reader.recv(64):
            for number in data:
                if number in SIGNALS:
                    self._heard(number)

    def _heard(self, number: int) -> None:
        with self._lock:
            again, self.requested = self.requested is not None, self.requested or number
            if self._unsaved and not (again and number == signal.SIGINT):
                if not again:
                    _tell("interrupted: finishing the rounds under way; Ctrl-C again ends at once.")
                return
            # Nothing is lost that was not lost to SIGKILL: what is on the disk is complete at any moment.
            resumes = "; the same command resumes from the last checkpoint" if self._resumable else ""
            _tell(f"interrupted{resumes}.")
            for cleanup in reversed(self.cleanups):
                with contextlib.suppress(Exception):
                    cleanup()
            os._exit(128 + number)

    def ask(self, number: int) -> None:
        """Asks for the run to end as after a signal, but never in the middle: at its next checkpoint.

        Args:
          number: the signal.
        """
        with self._lock:
            self.requested = self.requested or number

    def unsaved(self) -> None:
        """Tells that rounds have been computed since the last checkpoint, which are worth finishing and saving."""
        with self._lock:
            self._unsaved = self._resumable = True

    def saved(self) -> None:
        """Tells that everything computed is in a checkpoint."""
        with self._lock:
            self._unsaved, self._resumable = False, True


def _tell(line: str) -> None:
    with contextlib.suppress(OSError):
        os.write(2, f"{line}\n".encode())


_active: list[Watch] = []


def active() -> Watch | None:
    """Returns the watch of this process, if a binary has set one up."""
    return _active[-1] if _active else None


def before_exit(cleanup: Callable[[], object]) -> None:
    """Has something done if a signal ends the process at once, which runs no `finally`; the last comes first."""
    if (watch := active()) is not None:
        watch.cleanups.append(cleanup)


@contextlib.contextmanager
def watched() -> Iterator[Watch | None]:
    """Hears Ctrl-C and SIGTERM while the body runs; in a thread other than the main one it does nothing."""
    if threading.current_thread() is not threading.main_thread() or _active:
        yield active()
        return
    watch = Watch()
    # A Python handler must be there, or the system's default would end the process; it has nothing to do.
    before = {number: signal.signal(number, lambda *_: None) for number in SIGNALS}
    descriptor = signal.set_wakeup_fd(watch._writer.fileno(), warn_on_full_buffer=False)
    watch._thread.start()
    _active.append(watch)
    try:
        yield watch
    finally:
        _active.pop()
        signal.set_wakeup_fd(descriptor)
        for number, handler in before.items():
            signal.signal(number, handler)
        watch._writer.close()
