"""Parsing and formatting of choices, `name:key=value,key="quoted, value"`."""

import difflib
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from fedwin.errors import UserError

# A quote of the same kind inside a quoted value is doubled, as in CSV.
_QUOTED = re.compile(r"""\s*("(?:[^"]|"")*"|'(?:[^']|'')*')\s*(?=,|$)""")


# Largest integer of the device's 32-bit type.
INT32_MAX = 2**31 - 1


class Choice(NamedTuple):
    """A parsed choice, such as `fedprox:mu=0.1`; `str(choice)` parses to the same choice.

    >>> parse("fedprox:mu=0.1")
    Choice(name='fedprox', params={'mu': 0.1})

    Attributes:
      name: name in the registry.
      params: parameter -> value.
    """

    name: str
    params: dict[str, Any]

    def with_params(self, **params) -> "Choice":
        """Returns the choice with parameters added or replaced."""
        return Choice(self.name, self.params | params)

    def __str__(self) -> str:
        params = ",".join(f"{key}={format_value(value)}" for key, value in self.params.items())
        return f"{self.name}:{params}" if params else self.name


def nearest(name: str, candidates) -> str:
    """Returns ` Did you mean 'x'?` for the candidate closest to a misspelled name, or '' if none is close."""
    names = list(candidates)
    longer = [each for each in names if each.endswith(f"_{name}")]  # lr is not a typo of lora
    close = lambda cutoff: difflib.get_close_matches(name, names, n=1, cutoff=cutoff)
    match = close(0.8) or longer[:2] or close(0.5)
    return f" Did you mean {' or '.join(map(repr, match))}?" if match else ""


def literal(text: str) -> Any:
    """Returns the bool, None, int or float that a text spells, or else the text itself.

    A number with a decimal point is a float: `start=1.0` and `start=1` differ in meaning.

    >>> literal("3"), literal("1.0"), literal("none"), literal("gn")
    (3, 1.0, None, 'gn')
    """
    lowered = text.lower()
    if lowered in ("true", "false"):
        return lowered == "true"
    if lowered == "none":
        return None
    if "_" in text or (len(text) > 1 and text[0] == "0" and text.isdigit()):
        return text  # a name, not a number, although Python reads 1_0 as 10
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def check_size(name: str, value: Any) -> None:
    """Raises UserError if an integer, called `name`, does not fit in the device's 32 bits; other values pass."""
    if type(value) is int and abs(value) > INT32_MAX:
        raise UserError(f"{name}={value} must lie within {INT32_MAX}: integers have 32 bits on the device.")


def format_value(value: Any) -> str:
    """Returns a value as the command line spells it, such as true, none, 0.1; text is quoted if it could be misread."""
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str):
        return str(value)
    if value and value == value.strip() and value[0] not in "\"'" and "," not in value and literal(value) == value:
        return value
    quote = '"' if '"' not in value or "'" in value else "'"
    return quote + value.replace(quote, 2 * quote) + quote


def parse(text: str, read: Callable[[str], Any] = literal) -> Choice:
    """Parses `name` or `name:key=value,key=value`; quoted values may contain commas, and `read` converts the others.

    Raises:
      UserError: when the text has another form.
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
        params[key] = read(value) if quoted is None else quoted
        _, colon, rest = (rest if quoted is None else following).partition(",")
    return Choice(name, params)


def as_choice(choice: Any, kind: str) -> Choice:
    """Returns a Choice, parsed if it is given as text; raises UserError for another type or an invalid text."""
    if isinstance(choice, str):
        return parse(choice)
    if not isinstance(choice, Choice):
        raise UserError(f"{kind}={choice!r} must be text, a name or 'name:key=value,key=value'.")
    return choice


def _quoted(text: str, key: str, rest: str) -> tuple[str | None, str]:
    """Returns (quoted value at the start of `rest`, remaining text), or (None, '') if `rest` starts with no quote."""
    if rest.lstrip()[:1] not in ("'", '"'):
        return None, ""
    match = _QUOTED.match(rest)
    if not match:
        raise UserError(f"'{text}': the quote that opens {key}= is not closed; write {key}=\"value\".")
    quote, inner = match[1][0], match[1][1:-1]
    return inner.replace(2 * quote, quote), rest[match.end() :]
