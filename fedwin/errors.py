"""The errors that are reported in one line."""

import contextlib
import traceback
import warnings
from collections.abc import Callable, Iterator


class UserError(ValueError):
    """A bad flag, file or argument: one line that names the culprit and the remedy.

    Binaries print it on stderr without a traceback and exit with status 2.
    """


class StorageError(OSError):
    """A write that failed (a full disk, a lost mount): one line that names file and reason.

    What was saved before stays intact; the same command resumes once there is room. Binaries print it on stderr without
    a traceback and exit with status 1.
    """


def fault(error: BaseException) -> str:
    """Returns an exception of the user's own code in one line, with the place where it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" in {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    said = (str(error).splitlines() or [""])[0]
    return f"{type(error).__name__}{place}: {said.rstrip('.') or 'no message'}."


@contextlib.contextmanager
def running(function: Callable, what: str) -> Iterator[None]:
    """Makes a UserError of whatever a function of the user's own raises in the body.

    Args:
      function: what is run; errors of fedwin's own functions stay what they are.
      what: has happened when it raises.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        if function.__module__.startswith("fedwin."):
            raise
        raise UserError(f"{what}: {fault(error)}") from error


def deprecated(old: str, new: str, until: str = "0.3", stacklevel: int = 3) -> None:
    """Warns that a public name has changed.

    Args:
      old: the name as it was used.
      new: what to write instead.
      until: version that no longer accepts the old name.
      stacklevel: frames between the user's line and this function.
    """
    warnings.warn(f"{old} is deprecated until fedwin {until}; use {new}.", DeprecationWarning, stacklevel=stacklevel)
