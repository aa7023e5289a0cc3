"""Keeping orbax and tensorstore from telling at length what a run tells in one line."""

import contextlib
import logging
import sys
import traceback

# Those that orbax's threads and asyncio's tasks write to.
LOGGERS = ("absl", "asyncio")


@contextlib.contextmanager
def quiet():
    """Keeps orbax from logging tracebacks of what is reported in one line."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


@contextlib.contextmanager
def abandoned_saves_muted():
    """Keeps what a failed save leaves behind from being told a second time.

    tensorstore's threads report to an event loop that is gone, and threads and tasks of orbax that nobody waits for any
    more end with the same error. Both may happen later still: after a failure the hook and the filters stay.
    """
    show = sys.unraisablehook

    def shown(unraisable):
        error = unraisable.exc_value
        if not (isinstance(error, RuntimeError) and str(error) == "Event loop is closed"):
            show(unraisable)

    sys.unraisablehook = shown
    for name in LOGGERS:
        logging.getLogger(name).addFilter(not_of_orbax)
    yield
    sys.unraisablehook = show
    for name in LOGGERS:
        logging.getLogger(name).removeFilter(not_of_orbax)


def not_of_orbax(record: logging.LogRecord) -> bool:
    """Whether a logged error was raised by other code than orbax's."""
    trace = record.exc_info[2] if record.exc_info else None
    return not any("orbax" in frame.f_code.co_filename for frame, _ in traceback.walk_tb(trace))
