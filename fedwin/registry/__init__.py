"""Registries of named builders, with papers, hyper-parameters and facts; choices are `name:key=value,key=value`.

>>> partitions = Registry("partition")
>>> @partitions.register("shards")
... def shards(*, per_client: int = 2):
...     return per_client
>>> partitions.build("shards:per_client=3")
3
"""

import dataclasses
import importlib
import inspect
import pkgutil
import re
import types
from collections.abc import Callable
from typing import Any, NamedTuple

from fedwin.errors import UserError, user_code
from fedwin.registry import listing, papers
from fedwin.registry.choices import Choice, as_choice, check_size, nearest, parse
from fedwin.registry.papers import Paper
from fedwin.registry.ranges import Values, values_of

__all__ = ["Choice", "Entry", "Hyperparameter", "Registry", "import_all", "nearest", "parse"]

_ARGUMENT = re.compile(r"^(\s+)(\w+): (.*)$")


class Hyperparameter(NamedTuple):
    """A keyword-only parameter of a builder.

    Attributes:
      meaning: its description in the builder's docstring, or ''.
      values: the values that it accepts, by its annotation or its default.
    """

    name: str
    default: Any
    meaning: str
    values: Values

    @property
    def description(self) -> str:
        """Its meaning and range, such as 'decay of the mean (in [0, 1)).'."""
        limits = str(self.values)
        return f"{self.meaning.rstrip('.')} ({limits}).".lstrip() if limits else self.meaning


@dataclasses.dataclass(frozen=True)
class Entry:
    """A registered builder with its documentation.

    Attributes:
      summary: first line of the builder's docstring, without the name before its colon.
      papers: its sources.
      instances: choices, small enough for tests, that cover its variants.
      hyperparameters: keyword-only parameters of the builder.
      facts: name -> value of the further properties that its registry defines.
    """

    name: str
    builder: Callable
    summary: str
    papers: tuple[Paper, ...]
    instances: tuple[str, ...]
    hyperparameters: tuple[Hyperparameter, ...]
    facts: dict[str, Any]


class Registry(dict):
    """A dict, name -> builder; choices may set the keyword-only parameters of a builder.

    Args:
      kind: kind of the registered objects, for messages ('algorithm', 'partition', ...).
      columns: heading -> format string of the facts, for the columns of the table that not every table has.
      rule: heading of the column of summaries in the table.
      common: parameter -> meaning, for parameters that many builders share and need not document.
      builds: type of what a builder returns, or several types.
      facts: name -> default of the properties that an entry may have.
    """

    def __init__(
        self,
        kind: str,
        *,
        columns: dict[str, str] | None = None,
        rule: str = "what it is",
        common: dict[str, str] | None = None,
        builds: Any = object,
        **facts,
    ):
        super().__init__()
        self.builds = builds if isinstance(builds, tuple) else (builds,)
        self.kind, self.columns, self.rule, self.common, self.facts = kind, columns or {}, rule, common or {}, facts
        self._entries: dict[str, Entry] = {}

    def register(
        self,
        name: str,
        builder: Callable | None = None,
        *,
        paper: str | Paper | tuple[str | Paper, ...] = (),
        instances: tuple[str, ...] = (),
        like: str | None = None,
        **facts,
    ):
        """Registers a builder, as the decorator `@register("name", ...)` or as `register("name", builder, ...)`.

        Args:
          name: its name in choices.
          builder: the function; None returns a decorator.
          paper: key of papers.bib, BibTeX entry or Paper; a tuple for several.
          instances: choices, small enough for tests, that cover its variants; () stands for the name alone.
          like: a registered name whose papers, facts and meanings of parameters hold for this one as well, where it
            gives no others.
          facts: name -> value of the properties that the registry defines.

        Returns:
          The builder, or a decorator.

        Raises:
          UserError: for a name that another function has or that no choice can have, a builder that is not a function,
            a default that its parameter does not accept, an annotation of it that names what does not exist, an unknown
            paper or an unknown fact.
        """
        if not isinstance(name, str) or not name or set(name) & set(":,= \t\n"):
            rule = 'a name is text without blanks, colons, commas and equals signs; rename it: @register("name").'
            raise UserError(f"{self.kind} {name!r}: {rule}")
        if builder is None:
            return lambda function: self.register(name, function, paper=paper, instances=instances, like=like, **facts)
        if not callable(builder):
            raise UserError(f"{self.kind} '{name}': {builder!r} is not a function; register the one that builds it.")
        if name in self and not _same(self[name], builder):
            raise UserError(f"{self.kind} '{name}' is registered already, by {_place(self[name])}; take another name.")
        for fact in facts:
            if fact not in self.facts:
                names = ", ".join(("paper", "instances", *self.facts))
                raise UserError(
                    f"{self.kind} '{name}': there is no fact '{fact}'.{nearest(fact, self.facts)} Known: {names}."
                )
        base = self._entries[self._known(like)] if like else None
        sources = (paper,) if isinstance(paper, (str, Paper)) else paper
        entry_papers = tuple(papers.find(source) for source in sources) or (base.papers if base else ())
        parameters = self._hyperparameters(builder, base)
        for p in parameters:
            if p.default is not None and p.default is not inspect.Parameter.empty:  # None: not given
                self._accepted(Choice(name, {p.name: p.default}), p, None)
        all_facts = (base.facts if base else self.facts) | facts
        summary, shown = _summary(name, builder), tuple(instances) or (name,)
        self[name] = builder
        self._entries[name] = Entry(name, builder, summary, entry_papers, shown, parameters, all_facts)
        return builder

    @property
    def entries(self) -> dict[str, Entry]:
        """Name -> Entry, in order of registration."""
        return {name: self._entries[name] for name in self}

    def instances(self) -> tuple[str, ...]:
        """Returns the instances of all entries, in order of registration."""
        return tuple(choice for entry in self.entries.values() for choice in entry.instances)

    def table(self, style: str = "markdown") -> str:
        """Returns the entries as a table, sorted by name.

        Args:
          style: 'markdown', or 'plain' for a terminal of 120 columns, with a line per entry.
        """
        entries = [entry for _, entry in sorted(self.entries.items())]
        return (listing.markdown if style == "markdown" else listing.plain)(entries, self.columns, self.rule)

    def details(self, name: str) -> str:
        """Returns rule, costs, parameters and papers of an entry for a terminal; raises UserError if there is none."""
        return listing.details(self._entries[self._known(name)], self.columns)

    def _known(self, name: str) -> str:
        """Returns a name; raises UserError if nothing is registered by it."""
        if name not in self:
            names, meant = ", ".join(sorted(self)), nearest(name, self)
            base, number = re.fullmatch(r"(.*?)_?(\d*)", name, re.DOTALL).groups()  # type: ignore[union-attr]
            if number and base in self and (options := self.options(base)):  # the name of a read-out, such as wima50
                meant = f" Did you mean '{base}:{next(iter(options))}={number}'?"
            raise UserError(f"unknown {self.kind} '{name}'.{meant} Known: {names}.")
        return name

    def check(self, choice: str | Choice) -> Choice:
        """Returns a choice, parsed if it is text, with every value converted to the type of its parameter.

        Raises:
          UserError: for an unknown name, an unknown or missing parameter, or a value of another type or out of range.
        """
        texts = parse(choice, str).params if isinstance(choice, str) else {}
        choice = as_choice(choice, self.kind)
        known = {option.name: option for option in self._entries[self._known(choice.name)].hyperparameters}
        for key in choice.params:
            if key not in known:
                names = ", ".join(known) or "no parameters"
                nested = (f'{name}="{value},{key}=..."' for name, value in choice.params.items() if ":" in str(value))
                more = "".join(f" A value with several parameters is quoted: {text}." for text in nested)
                if (p := inspect.signature(self[choice.name]).parameters.get(key)) and p.default is not p.empty:
                    more += f" Define '{key}' behind a '*', as a keyword-only parameter."
                raise UserError(
                    f"{self.kind} '{choice.name}' has no parameter '{key}'.{nearest(key, known)} It takes: {names}."
                    f"{more}"
                )
        for key, option in known.items():
            if option.default is inspect.Parameter.empty and key not in choice.params:
                raise UserError(f"{self.kind} '{choice.name}' needs {key}=...; write {choice.name}:{key}=VALUE.")
        return Choice(choice.name, {key: self._accepted(choice, known[key], texts.get(key)) for key in choice.params})

    def _accepted(self, choice: Choice, parameter: Hyperparameter, text: str | None) -> Any:
        """Returns the value of a parameter, spelled `text`, as the builder receives it, or raises UserError."""
        value, owner = choice.params[parameter.name], f"{self.kind} '{choice.name}': {parameter.name}"
        try:
            accepted = parameter.values.accept(value, text)
        except ValueError as error:
            raise UserError(f"{owner}={value} {error}") from None
        check_size(owner, accepted)
        return accepted

    def options(self, name: str) -> dict[str, Any]:
        """Returns the keyword-only parameters of a builder, name -> default."""
        return {option.name: option.default for option in self._entries[name].hyperparameters}

    def build(self, choice: str | Choice, *context):
        """Builds a choice: `builder(*context, **params)`.

        Args:
          choice: a Choice or its text.
          context: positional arguments of the registry's builders.

        Raises:
          UserError: for an invalid choice, or a builder that returns another type or, outside fedwin, raises an error.
        """
        choice = self.check(choice)
        builder, failure = self[choice.name], f"{self.kind} '{choice.name}' can't be built"
        try:
            inspect.signature(builder).bind(*context, **choice.params)
        except TypeError as error:
            like = inspect.signature(next(iter(self.values()))).parameters.values()  # an entry of fedwin's own
            names = [p.name for p in like if p.kind is p.POSITIONAL_OR_KEYWORD]
            form = f"{_place(builder)}({', '.join([*names, '*', '...'])})"
            raise UserError(f"{failure}: {error}; define {form}.") from error
        with user_code(builder, failure):
            built = builder(*context, **choice.params)
        return self.checked(built, choice.name)

    def checked(self, built: Any, name: str) -> Any:
        """Returns what a builder has returned; raises UserError if it has another type than the registry's."""
        if not isinstance(built, self.builds):
            wanted = " or ".join("a function" if kind is Callable else kind.__name__ for kind in self.builds)
            raise UserError(f"{self.kind} '{name}': its builder must return {wanted}, not {type(built).__name__}.")
        return built

    def _hyperparameters(self, builder: Callable, base: Entry | None) -> tuple[Hyperparameter, ...]:
        shared = {h.name: h.meaning for h in base.hyperparameters} if base else self.common
        meanings = shared | documented_arguments(builder)
        return tuple(
            Hyperparameter(p.name, p.default, meanings.get(p.name, ""), values_of(p)) for p in _keywords(builder)
        )


def _keywords(builder: Callable) -> list[inspect.Parameter]:
    """Returns a builder's keyword-only parameters; other annotations may name what only type checkers know."""
    try:
        signature = inspect.signature(builder, eval_str=True)
    except NameError:
        signature = inspect.signature(builder)
    keywords = [p for p in signature.parameters.values() if p.kind is p.KEYWORD_ONLY]
    return [_evaluated(p, builder) if isinstance(p.annotation, str) else p for p in keywords]


def _evaluated(parameter: inspect.Parameter, builder: Callable) -> inspect.Parameter:
    """Returns a parameter with its annotation, which is text, evaluated; raises UserError if it can't be."""
    names = getattr(inspect.unwrap(builder), "__globals__", {})
    try:
        return parameter.replace(annotation=eval(parameter.annotation, names))
    except NameError as error:
        raise UserError(
            f"{_place(builder)}: {parameter.name} can't be checked ({error}); import the name of its annotation at run "
            f"time, not under TYPE_CHECKING alone."
        ) from error


def _place(builder: Callable) -> str:
    return f"{getattr(builder, '__module__', '?')}.{getattr(builder, '__qualname__', builder)}"


def _same(first: Callable, second: Callable) -> bool:
    """Whether two functions are the same object, or the same definition in a module that was imported twice."""
    if first is second:
        return True
    if not (isinstance(first, types.FunctionType) and isinstance(second, types.FunctionType)):
        return False
    lines = [(code.co_filename, code.co_firstlineno, code.co_qualname) for code in (first.__code__, second.__code__)]
    return lines[0] == lines[1] or (_place(first) == _place(second) and "<" not in _place(first))


def _summary(name: str, builder: Callable) -> str:
    first = (inspect.getdoc(builder) or "").partition("\n")[0].rstrip(".")
    before, colon, after = first.partition(": ")
    same = lambda text: re.sub(r"\W|_", "", text).lower()
    return after if colon and same(before) == same(name) else first


def documented_arguments(builder: Callable) -> dict[str, str]:
    """Returns parameter -> meaning from the section `Args:` of a builder's docstring."""
    meanings: dict[str, str] = {}
    indent, current = None, ""
    lines = (inspect.getdoc(builder) or "").splitlines()
    start = lines.index("Args:") + 1 if "Args:" in lines else len(lines)
    for line in lines[start:]:
        match = _ARGUMENT.match(line)
        if match and indent in (None, match[1]):
            indent, current = match[1], match[2]
            meanings[current] = match[3].strip()
        elif line.strip() and line.startswith(" ") and current:
            meanings[current] += " " + line.strip()
        else:
            break
    return meanings


def import_all(package: str, path) -> None:
    """Imports every module of a package, so that they register their builders: `import_all(__name__, __path__)`."""
    for module in pkgutil.iter_modules(path):
        importlib.import_module(f"{package}.{module.name}")
