"""What a job does on its machine, where it is unpickled: runs the command of a run. Needs the standard library only."""

import importlib
import os
import pathlib
import signal
import subprocess
import sys
from typing import Any

# Executes a command that receives SIGTERM, and saves, when the process that started it ends, however it ends.
_TIED = "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 15); os.execv(sys.argv[1], sys.argv[1:])"


class Work:
    """A command that is executed in this working directory; its output replaces the contents of a file."""

    def __init__(self, command: list[str], log: pathlib.Path, environment: dict[str, str | None]):
        self.command, self.log, self.environment = command, log.absolute(), environment
        self.directory, self.pid = os.getcwd(), 0

    def __call__(self) -> int:
        """Executes the command; returns its exit status."""
        environment = {name: value for name, value in (os.environ | self.environment).items() if value is not None}
        streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stderr": subprocess.STDOUT}
        place: dict[str, Any] = {"cwd": self.directory, "env": environment, "start_new_session": True}
        with self.log.open("wb") as log:  # in a session of its own, to which a terminal's Ctrl-C is passed on once
            process = subprocess.Popen([sys.executable, "-c", _TIED, *self.command], stdout=log, **streams, **place)
        self.pid = process.pid
        try:
            return process.wait()
        except BaseException:
            process.terminate()
            raise

    def checkpoint(self) -> Any:
        """Lets the run save before its time is over or another job needs the place; returns what submitit requeues."""
        os.kill(self.pid, signal.SIGTERM)
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)  # `wait` holds a lock of its own under this handler
        return importlib.import_module("submitit").helpers.DelayedSubmission(self)
