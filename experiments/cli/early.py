"""Start-up: Ctrl-C and SIGTERM while jax is imported end the process with one line; garbage is collected less often.

Uses the standard library alone, so that it takes effect before jax is imported.
"""

import contextlib
import gc
import os
import pathlib
import signal
import sys

# New objects between two garbage collections while modules are imported, which create much and drop little.
IMPORTING = 50_000


def _end(number, frame) -> None:
    with contextlib.suppress(OSError):
        os.write(2, b"interrupted.\n")
    os._exit(128 + number)


def quiet_start() -> None:
    """Prepares a process that was started as a subcommand for its imports; a plain import changes nothing."""
    # sys.argv[0] is "-m" while `python -m` looks for the module.
    if sys.argv and (sys.argv[0] == "-m" or pathlib.Path(sys.argv[0]).stem == "fedwin"):
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, _end)
        gc.set_threshold(IMPORTING)
        # A stream that the shell has closed (2>&-) is None, and the next file to be opened would take its number.
        sys.stdout, sys.stderr = (stream or open(os.devnull, "w") for stream in (sys.stdout, sys.stderr))


def imported() -> None:
    """Ends what `quiet_start` began: exempts what was imported from garbage collection, and collects as usual again."""
    if gc.get_threshold()[0] == IMPORTING:
        gc.freeze()
        gc.set_threshold(700)
