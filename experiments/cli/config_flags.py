"""Flags of `fedwin train`: one for each field of Config."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

from absl import flags

from fedwin.errors import UserError
from fedwin.runs.config import GROUPS, INTEGER_LISTS, Config, default_of, stored

from . import flag_errors

# `import` is a keyword of Python, so the field has another name. Every subcommand defines this flag.
_FLAGS = {"imports": "import"}
_DEFINE: dict[type, Callable] = {
    bool: flags.DEFINE_bool,
    int: flags.DEFINE_integer,
    float: flags.DEFINE_float,
    str: flags.DEFINE_string,
}


def flag_of(field: str) -> str:
    """Returns the name of a field's flag."""
    return _FLAGS.get(field, field)


def define(flag_values: flags.FlagValues = flags.FLAGS) -> dict[str, list[str]]:
    """Defines a flag for every field; returns title -> names of flags."""
    groups: dict[str, list[str]] = {}
    for heading, group in GROUPS.items():
        names = groups.setdefault(heading, [])
        for field in dataclasses.fields(group):
            if field.name in _FLAGS:
                continue
            name, default, text = field.name, default_of(field), field.metadata["help"]
            if name in INTEGER_LISTS:
                flags.DEFINE_list(name, [str(item) for item in default], text, flag_values=flag_values)
            elif isinstance(default, list):
                flags.DEFINE_multi_string(name, default, text, flag_values=flag_values)
            else:
                _DEFINE[type(default)](name, default, text, flag_values=flag_values)
            names.append(name)
    return groups


def config_from_flags(flag_values: flags.FlagValues = flags.FLAGS) -> Config:
    """Returns the Config of the flags."""
    names = [field.name for field in dataclasses.fields(Config) if flag_of(field.name) in flag_values]
    values: dict[str, Any] = {name: flag_values[flag_of(name)].value for name in names}
    return Config(**values)


def given_fields() -> set[str]:
    """Returns the fields whose flags are set on the command line or in a flagfile."""
    names = [field.name for field in dataclasses.fields(Config)]
    return {name for name in names if flag_of(name) in flags.FLAGS and flags.FLAGS[flag_of(name)].present}


@functools.cache
def fields() -> dict[str, dataclasses.Field]:
    """Returns flag -> field."""
    return {flag_of(field.name): field for field in dataclasses.fields(Config)}


def read(field: dataclasses.Field, text: str) -> Any:
    """Returns a field's value as its flag parses it, a list of one of a repeated flag; UserError for another type."""
    kind = type(default_of(field))
    if kind is list:
        return text.split(",") if field.name in INTEGER_LISTS else [text]
    try:
        return stored(field, flags.BooleanParser().parse(text) if kind is bool else kind(text))
    except ValueError as error:
        raise UserError(flag_errors.message(f"flag --{flag_of(field.name)}={text}: {error}")) from error
