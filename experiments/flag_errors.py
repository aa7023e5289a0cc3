"""What is wrong with a command line, in the words of whoever wrote it."""

import pathlib
import re
from collections.abc import Sequence

from absl import flags

from fedwin.errors import UserError

_ILLEGAL = re.compile(r"flag --(\w+)=(.*?): (.*)", re.DOTALL)
_WANTED = {
    "invalid literal for int()": "an integer",
    "could not convert string to float": "a number",
    "('Non-boolean": "true or false",
    "Non-boolean": "true or false",
}


def told(error: Exception | str) -> str:
    """Returns an error of absl's parser as a sentence about the flag."""
    text = str(error)
    if match := _ILLEGAL.fullmatch(text):
        name, value, reason = match.groups()
        wanted = next((kind for start, kind in _WANTED.items() if reason.startswith(start)), None)
        return f"flag --{name}={value} must be {wanted}." if wanted else text
    if text.endswith("does not take an argument"):
        flag = text.partition("=")[0]
        return f"{text.partition(' ')[0]}: {flag} takes no value; write {flag} or --{flag[4:]} alone."
    return text


def check_file(text: str, trail: Sequence[pathlib.Path] = ()) -> None:
    """Checks that a flagfile, and those that it names, can be read and end.

    Args:
      text: its path.
      trail: the files that lead to it.

    Raises:
      UserError: one is missing, a directory, not UTF-8, or names itself.
    """
    path = pathlib.Path(text).expanduser()
    if path in trail:
        way = " -> ".join(str(one) for one in (*trail[trail.index(path) :], path))
        raise UserError(f"flagfile={text}: it names itself ({way}); remove one of these lines.")
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise UserError(f"flagfile={text}: it is not UTF-8 text (byte {error.start}); save it as UTF-8.") from error
    except OSError as error:
        by = f", named by {trail[-1]}" if trail else ""
        raise UserError(f"flagfile={text}{by}: it can't be read ({error.strerror}); check the path.") from error
    for line in lines:
        word, equals, inner = line.strip().partition("=")
        if word in ("--flagfile", "-flagfile") and equals:
            check_file(inner.strip(), (*trail, path))


# What absl's parser raises; a flag without a value that has one is a ValueError.
ERRORS = (flags.Error, ValueError)
