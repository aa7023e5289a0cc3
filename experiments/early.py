"""Ctrl-C and SIGTERM while a binary is still importing: one line and the usual status, no traceback.

Uses the standard library alone, so that it is in force before jax is imported.
"""

import contextlib
import os
import pathlib
import signal
import sys


def _end(number, frame) -> None:
    with contextlib.suppress(OSError):
        os.write(2, b"interrupted.\n")
    os._exit(128 + number)


def quiet_start() -> None:
    """Ends the process at a signal, if it was started as one of fedwin's binaries; importing them changes nothing."""
    # `python -m` has this name while it looks for the module.
    if sys.argv and (sys.argv[0] == "-m" or pathlib.Path(sys.argv[0]).stem == "fedwin"):
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, _end)
