"""Errors of the command line in plain words, and checks of flagfiles."""

import pathlib
import re
from collections.abc import Sequence
from typing import Any

from absl import flags

from fedwin.errors import UserError

# Errors of absl's parser; a missing value of a flag is a ValueError.
ERRORS = (flags.Error, ValueError)
_ILLEGAL = re.compile(r"flag --(\w+)=(.*?): (.*)", re.DOTALL)
# Start of absl's reason -> what the flag takes.
_INVALID: dict[type, str] = {int: "invalid literal for int():", float: "could not convert string to float:"}
_EXPECTED = {
    "invalid literal for int()": "an integer",
    "could not convert string to float": "a number",
    "('Non-boolean": "true or false",
    "Non-boolean": "true or false",
}


def message(error: Exception | str) -> str:
    """Returns an error of absl's parser as a sentence about the flag."""
    text = str(error)
    if match := _ILLEGAL.fullmatch(text):
        name, value, reason = match.groups()
        expected = next((kind for start, kind in _EXPECTED.items() if reason.startswith(start)), None)
        return f"flag --{name}={value} must be {expected}." if expected else text
    if text.endswith("does not take an argument"):
        flag = text.partition("=")[0]
        return f"{text.partition(' ')[0]}: {flag} takes no value; write {flag} or --{flag[4:]} alone."
    return text


def check_number(text: str, kind: type) -> None:
    """Checks that a number has no underscores, which Python would skip: 1_0 is 10.

    Args:
      text: of the number.
      kind: int or float.

    Raises:
      ValueError: it has some; the message is that of Python for other texts.
    """
    if "_" in text:
        raise ValueError(f"{_INVALID[kind]} {text!r}")


class StrictNumbers:
    """A parser of absl for numbers that refuses underscores.

    Args:
      parser: absl's own, to which everything else is left.
    """

    def __init__(self, parser: flags.ArgumentParser):
        self._parser = parser
        self._kind = int if isinstance(parser, flags.IntegerParser) else float

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parser, name)

    def parse(self, argument: Any) -> Any:
        """Returns the number of a flag's text."""
        if isinstance(argument, str):
            check_number(argument, self._kind)
        return self._parser.parse(argument)


def refuse_underscores(flag_values: flags.FlagValues = flags.FLAGS) -> None:
    """Makes all flags that are numbers refuse underscores, as in 1_0."""
    for name in flag_values:
        flag = flag_values[name]
        if isinstance(flag.parser, (flags.IntegerParser, flags.FloatParser)):
            flag.parser = StrictNumbers(flag.parser)  # type: ignore[assignment]  # all that a flag calls is there


def check_file(text: str, parents: Sequence[pathlib.Path] = ()) -> None:
    """Checks that a flagfile, and those that it includes, can be read and do not include themselves.

    Args:
      text: its path.
      parents: the files that include it, the outermost first.

    Raises:
      UserError: one is missing, a directory, not UTF-8, or includes itself.
    """
    path = pathlib.Path(text).expanduser()
    if path in parents:
        cycle = " -> ".join(str(file) for file in (*parents[parents.index(path) :], path))
        raise UserError(f"flagfile={text}: it includes itself ({cycle}); remove one of these lines.")
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise UserError(f"flagfile={text}: it is not UTF-8 text (byte {error.start}); save it as UTF-8.") from error
    except OSError as error:
        by = f", included by {parents[-1]}" if parents else ""
        raise UserError(f"flagfile={text}{by}: it can't be read ({error.strerror}); check the path.") from error
    for line in lines:
        flag, equals, inner = line.strip().partition("=")
        if flag in ("--flagfile", "-flagfile") and equals:
            check_file(inner.strip(), (*parents, path))
