"""Choices: `name:key=value,key="quoted, value"`, parsed once and passed on as an object."""

import difflib
import re
from typing import Any, NamedTuple

from fedwin.errors import UserError

# A quote of the same kind inside a quoted value is doubled, as in CSV.
_QUOTED = re.compile(r"""\s*("(?:[^"]|"")*"|'(?:[^']|'')*')\s*(?=,|$)""")


# The largest int32.
MOST = 2**31 - 1


class Choice(NamedTuple):
    """A parsed choice, such as `fedprox:mu=0.1`. `str(choice)` is a text that parses to the same choice.

    Attributes:
      name: name of the thing in its registry.
      params: parameter -> value.
    """

    name: str
    params: dict[str, Any]

    def with_params(self, **params) -> "Choice":
        """Returns the choice with further parameters; those given here win."""
        return Choice(self.name, self.params | params)

    def __str__(self) -> str:
        params = ",".join(f"{key}={shown(value)}" for key, value in self.params.items())
        return f"{self.name}:{params}" if params else self.name


def nearest(name: str, known) -> str:
    """Returns ` Did you mean 'x'?` for the closest known name, or ''."""
    match = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f" Did you mean '{match[0]}'?" if match else ""


def literal(text: str) -> Any:
    """Reads an int, float, bool, none or, failing these, the text itself.

    A number with a decimal point stays a float: `start=1.0` and `start=1` mean different things.
    """
    lowered = text.lower()
    if lowered in ("true", "false"):
        return lowered == "true"
    if lowered == "none":
        return None
    if len(text) > 1 and text[0] == "0" and text.isdigit():
        return text  # a name, not a number
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def check_size(name: str, value: Any) -> None:
    """Raises UserError for an integer that no device can hold."""
    if type(value) is int and abs(value) > MOST:
        raise UserError(f"{name}={value} must lie within {MOST}: integers have 32 bits on the device.")


def shown(value: Any) -> str:
    """Returns a value as the command line spells it: true, none, 0.1; text in quotes where it would be misread."""
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str):
        return str(value)
    if value and value == value.strip() and value[0] not in "\"'" and "," not in value and literal(value) == value:
        return value
    quote = '"' if '"' not in value or "'" in value else "'"
    return quote + value.replace(quote, 2 * quote) + quote


def parse(text: str) -> Choice:
    """Parses `name` or `name:key=value,key=value`; a value in single or double quotes may hold commas.

    Raises:
      UserError: on anything else.
    """
    name, colon, rest = text.strip().partition(":")
    params: dict[str, Any] = {}
    while colon:
        item = rest.partition(",")[0]
        key, equals, value = item.partition("=")
        quoted, following = _quoted(text, key.strip(), rest[len(key) + 1 :]) if equals else (None, "")
        key, value = key.strip(), value.strip()
        if not (equals and key and (value or quoted is not None)):
            raise UserError(f"'{text}': '{item}' is not key=value; write {name}:key=value,key=value.")
        if key in params:
            raise UserError(f"'{text}': '{key}' is given twice; keep one.")
        params[key] = literal(value) if quoted is None else quoted
        _, colon, rest = (rest if quoted is None else following).partition(",")
    return Choice(name, params)


def as_choice(choice: Any, kind: str) -> Choice:
    """Returns a choice or the one that a text says; raises UserError for anything else."""
    if isinstance(choice, str):
        return parse(choice)
    if not isinstance(choice, Choice):
        raise UserError(f"{kind}={choice!r} must be text, a name or 'name:key=value,key=value'.")
    return choice


def check_entry(kind: str, name: Any, builder: Any) -> None:
    """Raises UserError for a name that no choice can say, or a builder that cannot be called."""
    if not isinstance(name, str) or not name or set(name) & set(":,= \t\n"):
        raise UserError(f"{kind} {name!r}: a name is text without blanks, colons, commas and equals signs; rename it.")
    if not callable(builder):
        raise UserError(f"{kind} '{name}': {builder!r} is not a function; register the function that builds it.")


def _quoted(text: str, key: str, rest: str) -> tuple[str | None, str]:
    """Returns (the quoted value that `rest` begins with, what follows it), or (None, '') where it begins with none."""
    if rest.lstrip()[:1] not in ("'", '"'):
        return None, ""
    match = _QUOTED.match(rest)
    if not match:
        raise UserError(f"'{text}': the quote that opens {key}= is not closed; write {key}=\"value\".")
    quote, inner = match[1][0], match[1][1:-1]
    return inner.replace(2 * quote, quote), rest[match.end() :]
