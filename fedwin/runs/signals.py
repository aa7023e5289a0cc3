"""Ctrl-C and SIGTERM: finish the current dispatch, save, and exit; a second Ctrl-C exits immediately.

Python's own signal handlers wait until XLA returns. A thread that reads the wake-up descriptor receives a signal
immediately, even during a dispatch or a compilation.
"""

import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator

from tqdm import tqdm

SIGNALS = (signal.SIGINT, signal.SIGTERM)
FINISHING = "interrupted: finishing the rounds under way; Ctrl-C again ends at once."


class Interrupted(KeyboardInterrupt):
    """Raised where a signal ends a run, after its state was saved; its message is one line for the user."""

    def __init__(self, number: int, message: str):
        super().__init__(message)
        self.number = number

    def _render_traceback_(self) -> list[str]:
        """Returns what a notebook shows in place of a traceback."""
        return [f"KeyboardInterrupt: {self}"]

    @property
    def status(self) -> int:
        """The exit status: 130 after Ctrl-C, 143 after SIGTERM."""
        return 128 + self.number


class Watch:
    """Receives signals in a thread.

    Attributes:
      caller: what resumes the run.
      requested: number of the first signal, or None.
      cleanups: callbacks before a signal terminates the process immediately.
    """

    caller = "command"

    def __init__(self):
        self.requested: int | None = None
        self._unsaved, self._resumable = False, False
        self.cleanups: list[Callable[[], object]] = []
        self._lock = threading.Lock()

    def handle(self, number: int, frame: object) -> None:
        """Does nothing: Python's handler, without which the system's default would end the process."""

    def listen(self, reader: socket.socket) -> None:
        """Receives the numbers of signals from a socket until its other end is closed."""
        with reader:
            while data := reader.recv(64):
                for number in data:
                    if number in SIGNALS:
                        self._receive(number)

    def _receive(self, number: int) -> None:
        with self._lock:
            again, self.requested = self.requested is not None, self.requested or number
            if self._unsaved and not (again and number == signal.SIGINT):
                if not again:
                    _print_error(FINISHING)
                return
            # Files on disk are consistent at any moment, as for SIGKILL.
            _print_error(self._ended)
            for cleanup in reversed(self.cleanups):
                with contextlib.suppress(Exception):
                    cleanup()
            os._exit(128 + number)

    @property
    def _ended(self) -> str:
        return f"interrupted{f'; the same {self.caller} resumes from the last checkpoint' if self._resumable else ''}."

    def request(self, number: int) -> None:
        """Makes the run end at its next checkpoint, as after a signal, but never before."""
        with self._lock:
            self.requested = self.requested or number

    def mark_unsaved(self) -> None:
        """Notes that rounds have been computed since the last checkpoint, which a signal should save."""
        with self._lock:
            self._unsaved = self._resumable = True

    def mark_saved(self) -> None:
        """Notes that everything computed is in a checkpoint."""
        with self._lock:
            self._unsaved, self._resumable = False, True


class CallWatch(Watch):
    """Receives the Ctrl-C of a call of `fedwin.run`: an exception ends the call, and the process goes on."""

    caller = "call"

    def handle(self, number: int, frame: object) -> None:
        """Lets the rounds under way finish; ends the call where nothing is unsaved, and at the second Ctrl-C."""
        if self.requested is not None or not self._unsaved:
            raise Interrupted(number, self._ended)
        self.requested = number
        _print_error(FINISHING)


def _print_error(line: str) -> None:
    # The terminal may be gone, which is no reason to stop.
    with contextlib.suppress(OSError, ValueError):
        tqdm.write(line, file=sys.stderr)  # above a progress bar
        sys.stderr.flush()


def active() -> Watch | None:
    """Returns the Watch of this process, or None outside of `watched`."""
    owner = getattr(signal.getsignal(signal.SIGINT), "__self__", None)
    return owner if isinstance(owner, Watch) else None


def before_exit(cleanup: Callable[[], object]) -> None:
    """Registers a callback for immediate termination, which runs no `finally` clause; callbacks run last to first."""
    if (watch := active()) is not None:
        watch.cleanups.append(cleanup)


@contextlib.contextmanager
def watched() -> Iterator[Watch | None]:
    """Receives Ctrl-C and SIGTERM while the body runs; does nothing in a thread other than the main one."""
    if threading.current_thread() is not threading.main_thread() or active() is not None:
        yield active()
        return
    watch, (reader, writer) = Watch(), socket.socketpair()
    writer.setblocking(False)
    previous = {number: signal.signal(number, watch.handle) for number in SIGNALS}
    descriptor = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    threading.Thread(target=watch.listen, args=(reader,), daemon=True).start()
    try:
        yield watch
    finally:
        signal.set_wakeup_fd(descriptor)
        for number, handler in previous.items():
            signal.signal(number, handler)
        writer.close()


@contextlib.contextmanager
def watched_call() -> Iterator[None]:
    """Receives Ctrl-C during a call, unless a command watches, the program has its own handler, or in other threads."""
    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not usual or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, CallWatch().handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
