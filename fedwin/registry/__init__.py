"""Named builders whose parameters are written `name:key=value,key=value`, with all that is known about them."""

import dataclasses
import importlib
import inspect
import pkgutil
import re
import types
import typing
from collections.abc import Callable
from typing import Any, NamedTuple

from fedwin.errors import UserError, deprecated, running
from fedwin.registry import listing, papers
from fedwin.registry.choices import Choice, as_choice, check_entry, check_size, literal, nearest, parse
from fedwin.registry.papers import Paper

__all__ = ["Choice", "Entry", "Hyperparameter", "Paper", "Registry", "import_all", "literal", "nearest", "parse"]

_KINDS = {int: "an integer", float: "a number", str: "a word", bool: "true or false", type(None): "none"}
_ARGUMENT = re.compile(r"^(\s+)(\w+): (.*)$")


class Hyperparameter(NamedTuple):
    """One keyword of a builder.

    Attributes:
      name: the keyword.
      default: its default; `inspect.Parameter.empty` where it must be given.
      meaning: what the builder's docstring says about it, or ''.
    """

    name: str
    default: Any
    meaning: str


@dataclasses.dataclass(frozen=True)
class Entry:
    """What a registry knows about one of its names.

    Attributes:
      name: what choices call it.
      builder: the function that builds it.
      summary: first line of the builder's docstring, without the name before its colon.
      papers: what it rests on.
      instances: choices, small enough for tests, that together cover its variants.
      hyperparameters: the builder's keywords.
      facts: whatever else is known about it, by the columns of its registry.
    """

    name: str
    builder: Callable
    summary: str
    papers: tuple[Paper, ...]
    instances: tuple[str, ...]
    hyperparameters: tuple[Hyperparameter, ...]
    facts: dict[str, Any]


class Registry(dict):
    """Name -> builder; the keyword-only parameters of a builder are what a choice may set.

    Args:
      kind: what the builders build, for error lines ('algorithm', 'partition', ...).
      columns: heading -> format string of the facts, the columns of the table beside those that every table has.
      rule: heading of the summary in the table.
      common: parameter -> its meaning, for parameters that many builders share and need not explain.
      facts: name -> default of what an entry may say about itself.
    """

    def __init__(
        self,
        kind: str,
        *,
        columns: dict[str, str] | None = None,
        rule: str = "what it is",
        common: dict[str, str] | None = None,
        **facts,
    ):
        super().__init__()
        self.kind, self.columns, self.rule, self.common, self.facts = kind, columns or {}, rule, common or {}, facts
        self._known: dict[str, Entry] = {}

    def register(
        self,
        name: str,
        builder: Callable | None = None,
        *,
        paper: str | Paper | tuple[str | Paper, ...] = (),
        instances: tuple[str, ...] = (),
        **facts,
    ):
        """Adds a builder: `@register("name", ...)` above it, or `register("name", builder, ...)`.

        Args:
          name: what choices call it.
          builder: the function; None returns a decorator.
          paper: key of papers.bib, BibTeX entry or Paper; a tuple for several.
          instances: choices, small enough for tests, that cover its variants; () is the name alone.
          facts: what the registry's kind of thing says about itself.

        Raises:
          UserError: for a name that another function has, an unknown paper or an unknown fact.
        """
        if builder is None:
            return lambda function: self.register(name, function, paper=paper, instances=instances, **facts)
        if "spans" in facts and "warmup_horizon" in self.facts:
            deprecated("register(spans=...)", "register(warmup_horizon=...)")
            facts["warmup_horizon"] = facts.pop("spans")
        check_entry(self.kind, name, builder)
        if name in self and not _same(self[name], builder):
            raise UserError(f"{self.kind} '{name}' is registered already, by {_place(self[name])}; take another name.")
        for fact in facts:
            if fact not in self.facts:
                known = ", ".join(("paper", "instances", *self.facts))
                raise UserError(
                    f"{self.kind} '{name}': there is no fact '{fact}'.{nearest(fact, self.facts)} Known: {known}."
                )
        several = (paper,) if isinstance(paper, (str, Paper)) else paper
        found = tuple(papers.find(one) for one in several)
        self[name] = builder
        self._known[name] = Entry(
            name,
            builder,
            _summary(name, builder),
            found,
            tuple(instances) or (name,),
            self._hyperparameters(builder),
            self.facts | facts,
        )
        return builder

    @property
    def entries(self) -> dict[str, Entry]:
        """Name -> what is known about it, in order of registration."""
        return {name: self._known[name] for name in self}

    def instances(self) -> tuple[str, ...]:
        """All small instances, in order of registration."""
        return tuple(choice for entry in self.entries.values() for choice in entry.instances)

    def table(self, style: str = "markdown") -> str:
        """Renders the entries, sorted by name.

        Args:
          style: 'markdown', or 'plain' for a terminal of 120 columns, with the parameters explained below each row.
        """
        entries = [entry for _, entry in sorted(self.entries.items())]
        return (listing.markdown if style == "markdown" else listing.plain)(entries, self.columns, self.rule)

    def check(self, choice: str | Choice) -> Choice:
        """Returns the choice with every value as its parameter wants it; a text is parsed.

        Raises:
          UserError: for an unknown name, an unknown or missing parameter or a value of the wrong type.
        """
        choice = as_choice(choice, self.kind)
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
        return Choice(choice.name, {key: self._typed(choice.name, key, value) for key, value in choice.params.items()})

    def _typed(self, name: str, key: str, value: Any) -> Any:
        """Returns a value as its parameter's annotation (or default) says; raises UserError for one of another type."""
        parameter = inspect.signature(self[name], eval_str=True).parameters[key]
        kinds = parameter.annotation
        if kinds is parameter.empty:
            kinds = parameter.empty if parameter.default in (None, parameter.empty) else type(parameter.default)
        kinds = typing.get_args(kinds) or (kinds,)
        if str not in kinds:
            check_size(f"{self.kind} '{name}': {key}", value)
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
        return {option.name: option.default for option in _keywords(self[name])}

    def build(self, choice: str | Choice, *context):
        """Builds what a choice or its text names: `builder(*context, **params)`."""
        choice = self.check(choice)
        with running(self[choice.name], f"{self.kind} '{choice.name}' can't be built"):
            return self[choice.name](*context, **choice.params)

    def _hyperparameters(self, builder: Callable) -> tuple[Hyperparameter, ...]:
        meanings = self.common | meanings_of(builder)
        return tuple(Hyperparameter(p.name, p.default, meanings.get(p.name, "")) for p in _keywords(builder))


def _keywords(builder: Callable) -> list[inspect.Parameter]:
    return [p for p in inspect.signature(builder).parameters.values() if p.kind is p.KEYWORD_ONLY]


def _place(builder: Callable) -> str:
    return f"{getattr(builder, '__module__', '?')}.{getattr(builder, '__qualname__', builder)}"


def _same(one: Callable, other: Callable) -> bool:
    """Whether two functions are one: the same object, or the same definition from a module that was imported twice."""
    if one is other:
        return True
    if not (isinstance(one, types.FunctionType) and isinstance(other, types.FunctionType)):
        return False
    at = [(code.co_filename, code.co_firstlineno, code.co_qualname) for code in (one.__code__, other.__code__)]
    return at[0] == at[1] or (_place(one) == _place(other) and "<" not in _place(one))


def _summary(name: str, builder: Callable) -> str:
    first = (inspect.getdoc(builder) or "").partition("\n")[0].rstrip(".")
    before, colon, after = first.partition(": ")
    same = lambda text: re.sub(r"\W|_", "", text).lower()
    return after if colon and same(before) == same(name) else first


def meanings_of(builder: Callable) -> dict[str, str]:
    """Reads the `name: meaning` lines below `Args:` in a builder's docstring."""
    found: dict[str, str] = {}
    indent, current = None, ""
    lines = (inspect.getdoc(builder) or "").splitlines()
    start = lines.index("Args:") + 1 if "Args:" in lines else len(lines)
    for line in lines[start:]:
        match = _ARGUMENT.match(line)
        if match and indent in (None, match[1]):
            indent, current = match[1], match[2]
            found[current] = match[3].strip()
        elif line.strip() and line.startswith(" ") and current:
            found[current] += " " + line.strip()
        else:
            break
    return found


def import_all(package: str, path) -> None:
    """Imports every module of a package, so that what they register is known: `import_all(__name__, __path__)`."""
    for module in pkgutil.iter_modules(path):
        importlib.import_module(f"{package}.{module.name}")
