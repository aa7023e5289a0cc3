"""Errors that are reported in one line: UserError, StorageError."""

import contextlib
import importlib.util
import pathlib
import re
import sys
import traceback
from collections.abc import Callable, Iterator

# Characters that move a terminal's cursor, change its state or the direction of a text, and lone surrogates.
UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def escape(text: object) -> str:
    """Returns a text with control and direction characters as escapes, so that it is one line on a terminal."""
    return UNPRINTABLE.sub(lambda match: match[0].encode("unicode_escape").decode(), str(text))


class UserError(ValueError):
    """An invalid flag, file or argument, described in one line that names the culprit and the remedy.

    Commands print the line on stderr without a traceback and exit with status 2. Names in it are escaped.
    """

    def __str__(self) -> str:
        return escape(super().__str__())


class StorageError(OSError):
    """A failed write (a full disk, a lost mount), described in one line that names the file and the reason.

    Previously saved files are intact, and the same command resumes once there is room. Commands print the line on
    stderr without a traceback and exit with status 1.
    """


def describe(error: BaseException) -> str:
    """Returns an exception in one line, with the file and line of the user's code that raised it."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{type(error).__name__} in {error.filename}:{error.lineno}: {error.msg}."
    frames = list(traceback.extract_tb(error.__traceback__))
    # The last frame of the user's code; frames of this package, of installed ones and of Python may come after it.
    libraries = (str(pathlib.Path(__file__).parent), sys.prefix, sys.base_prefix, "<")
    frames = [frame for frame in frames if not frame.filename.startswith(libraries)] or frames
    place = f" in {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    message = (str(error).splitlines() or [""])[0]
    return f"{type(error).__name__}{place}: {message.rstrip('.') or 'no message'}."


def require(need: str, package: str, extra: str, module: str = "") -> None:
    """Raises UserError unless the package of an extra is installed; imports nothing."""
    if importlib.util.find_spec(module or package) is None:
        raise UserError(f"{need}: the package '{package}' is not installed; pip install 'fedwin[{extra}]'.")


@contextlib.contextmanager
def user_code(function: Callable | None, failure: str) -> Iterator[None]:
    """Converts an exception that a user's function raises in the body to a UserError.

    Args:
      function: the function that runs in the body; exceptions of fedwin's own functions are not converted. None: any.
      failure: start of the message, such as "algorithm 'x' can't be built".
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        if function is not None and function.__module__.startswith("fedwin."):
            raise
        raise UserError(f"{failure}: {describe(error)}") from error
