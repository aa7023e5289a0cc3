"""Errors of the command line in plain words, and the text of flagfiles."""

import importlib
import pathlib
import re

from absl import flags

from fedwin.errors import UserError
from fedwin.registry import nearest

# Errors of absl's parser; a missing value of a flag is a ValueError.
ERRORS = (flags.Error, ValueError)
_ILLEGAL = re.compile(r"flag --(\w+)=(.*?): (.*)", re.DOTALL)
_UNKNOWN = re.compile(r"Unknown command line flag '([^']*)'")
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
    if match := _UNKNOWN.match(text):
        methods = importlib.import_module("fedwin.algorithms").ALGORITHMS
        owned = any(match[1] in methods.options(name) for name in methods)
        place = f" A method's parameter is part of its name: --algorithm=NAME:{match[1]}=VALUE." if owned else ""
        return f"unknown flag --{match[1]}.{nearest(match[1], flags.FLAGS)} --help lists all.{place}"
    if text.endswith("does not take an argument"):
        flag = text.partition("=")[0]
        return f"{text.partition(' ')[0]}: {flag} takes no value; write {flag} or --{flag[4:]} alone."
    return text


def read_file(path: pathlib.Path) -> str:
    """Returns the text of a flagfile; raises UserError if it is not readable, or not UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"flagfile={path}: it is not UTF-8 text (byte {error.start}); save it as UTF-8.") from error
    except OSError as error:
        raise UserError(f"flagfile={path}: it can't be read ({error.strerror}); check the path.") from error
