"""The flags of `fedwin train`: one for each field of Config."""

import dataclasses
from collections.abc import Callable
from typing import Any

from absl import flags

from fedwin.errors import UserError
from fedwin.runs.config import GROUPS, Config, default_of

from . import flag_errors

# `import` is a word of Python: the field has another name. Its flag is every binary's.
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


def define(known: flags.FlagValues = flags.FLAGS) -> dict[str, list[str]]:
    """Defines a flag for every field; returns title -> names of flags."""
    groups: dict[str, list[str]] = {title: [] for title in GROUPS}
    for field in dataclasses.fields(Config):
        if field.name in _FLAGS:
            continue
        name, default, told = field.name, default_of(field), field.metadata["help"]
        if name in ("wrap", "observe"):
            flags.DEFINE_multi_string(name, default, told, flag_values=known)
        elif isinstance(default, list):
            flags.DEFINE_list(name, [str(item) for item in default], told, flag_values=known)
        else:
            _DEFINE[type(default)](name, default, told, flag_values=known)
        groups[field.metadata["group"]].append(name)
    return groups


def config_from_flags(known: flags.FlagValues = flags.FLAGS) -> Config:
    """Returns the Config of the flags."""
    names = [field.name for field in dataclasses.fields(Config) if flag_of(field.name) in known]
    values: dict[str, Any] = {name: known[flag_of(name)].value for name in names}
    return Config(**values)


def given(known: flags.FlagValues = flags.FLAGS) -> set[str]:
    """Returns the fields whose flags are given on the command line or in a flagfile."""
    names = [field.name for field in dataclasses.fields(Config)]
    return {name for name in names if flag_of(name) in known and known[flag_of(name)].present}


def fields() -> dict[str, dataclasses.Field]:
    """Returns flag -> field."""
    return {flag_of(field.name): field for field in dataclasses.fields(Config)}


def read(field: dataclasses.Field, text: str) -> Any:
    """Returns one value of a field, as its flag reads it.

    Args:
      field: one of Config that is no list.
      text: what follows `--flag=`.

    Raises:
      UserError: it is not of the field's kind.
    """
    kind = type(default_of(field))
    try:
        return flags.BooleanParser().parse(text) if kind is bool else kind(text)
    except ValueError as error:
        raise UserError(flag_errors.told(f"flag --{flag_of(field.name)}={text}: {error}")) from error
