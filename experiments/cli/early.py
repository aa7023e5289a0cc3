"""Signal handling during start-up: Ctrl-C and SIGTERM while jax is imported end the process with one line.

Uses the standard library alone, so that it takes effect before jax is imported.
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
    """Installs the handlers if the process was started as a subcommand; a plain import changes nothing."""
    # sys.argv[0] is "-m" while `python -m` looks for the module.
    if sys.argv and (sys.argv[0] == "-m" or pathlib.Path(sys.argv[0]).stem == "fedwin"):
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, _end)
