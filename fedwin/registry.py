"""Named builders whose parameters are written `name:key=value,key=value`."""

import difflib
import importlib
import inspect
import pkgutil
import types
import typing
from typing import Any, Callable, NamedTuple

from fedwin.errors import UserError

_KINDS = {int: "an integer", float: "a number", str: "a word", bool: "true or false", type(None): "none"}


class Choice(NamedTuple):
    """A parsed choice: what `fedprox:mu=0.1` says."""

    name: str
    params: dict[str, Any]


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


def parse(text: str) -> Choice:
    """Parses `name` or `name:key=value,key=value`; raises UserError on anything else."""
    name, colon, rest = text.strip().partition(":")
    params: dict[str, Any] = {}
    if colon:
        for item in rest.split(","):
            key, equals, value = item.partition("=")
            key = key.strip()
            if not (equals and key and value.strip()):
                raise UserError(f"'{text}': '{item}' is not key=value; write {name}:key=value,key=value.")
            if key in params:
                raise UserError(f"'{text}': '{key}' is given twice; keep one.")
            params[key] = literal(value.strip())
    return Choice(name, params)


class Registry(dict):
    """Name -> builder; the keyword-only parameters of a builder are what a choice may set.

    Args:
      kind: what the builders build, for error lines ('algorithm', 'partition', ...).
    """

    def __init__(self, kind: str):
        super().__init__()
        self.kind = kind

    def register(self, name: str, builder: Callable | None = None):
        """Adds `builder` under `name`; also works as a decorator."""
        if builder is None:
            return lambda function: self.register(name, function)
        if name in self:
            raise ValueError(f"{self.kind} '{name}' is registered twice")
        self[name] = builder
        return builder

    def check(self, text: str) -> Choice:
        """Parses `text` and checks its name and parameters; raises UserError."""
        choice = parse(text)
        if choice.name not in self:
            known = ", ".join(sorted(self))
            raise UserError(f"unknown {self.kind} '{choice.name}'.{nearest(choice.name, self)} Known: {known}.")
        options = self.options(choice.name)
        for key in choice.params:
            if key not in options:
                takes = ", ".join(options) or "no parameters"
                raise UserError(
                    f"{self.kind} '{choice.name}' has no parameter '{key}'.{nearest(key, options)} It takes: {takes}."
                )
        for key, default in options.items():
            if default is inspect.Parameter.empty and key not in choice.params:
                raise UserError(f"{self.kind} '{choice.name}' needs {key}=...; write {choice.name}:{key}=VALUE.")
        for key, value in choice.params.items():
            choice.params[key] = self._typed(choice.name, key, value)
        return choice

    def _typed(self, name: str, key: str, value: Any) -> Any:
        """Returns a value as its parameter's annotation (or default) says; raises UserError for one of another type."""
        parameter = inspect.signature(self[name], eval_str=True).parameters[key]
        kinds = parameter.annotation
        if kinds is parameter.empty:
            kinds = parameter.empty if parameter.default in (None, parameter.empty) else type(parameter.default)
        kinds = typing.get_args(kinds) or (kinds,)
        if typing.get_origin(parameter.annotation) not in (None, typing.Union, types.UnionType):
            return value
        if not set(kinds) <= _KINDS.keys() or type(value) in kinds or (float in kinds and type(value) is int):
            return value
        if str in kinds:
            return "none" if value is None else str(value)
        wanted = " or ".join(_KINDS[kind] for kind in kinds)
        raise UserError(f"{self.kind} '{name}': {key}={value} must be {wanted}.")

    def options(self, name: str) -> dict[str, Any]:
        """Returns the keyword-only parameters of a builder with their defaults."""
        parameters = inspect.signature(self[name]).parameters.values()
        return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}

    def build(self, text: str, *context):
        """Builds what `text` names: `builder(*context, **params)`."""
        choice = self.check(text)
        return self[choice.name](*context, **choice.params)


def import_all(package: str, path) -> None:
    """Imports every module of a package, so that what they register is known: `import_all(__name__, __path__)`."""
    for module in pkgutil.iter_modules(path):
        importlib.import_module(f"{package}.{module.name}")
