"""Ranges of hyper-parameters, in the annotations of a builder's keyword-only parameters.

    def builder(setting, solve, *, mu: NonNegative = 0.01, option: Literal["I", "II"] = "II")

The registry checks them before it builds, and lists them. An interval without a name is
`Annotated[float, Range(1, 2, open_most=True)]`; a parameter without annotation accepts the type of its default.
"""

import inspect
import math
import types
import typing
from collections.abc import Iterable
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np

from fedwin.errors import UserError
from fedwin.registry.choices import check_size, format_value, nearest

# The smallest normal float32: smaller numbers are flushed to 0 on the device. The largest: larger ones are infinite.
SMALLEST, LARGEST = 2.0**-126, (2 - 2.0**-23) * 2.0**127

_KINDS = {float: "a number", int: "an integer", str: "text", bool: "true or false", type(None): "none"}


class Range(NamedTuple):
    """An interval of numbers; an infinite end asks for finite numbers.

    >>> str(Range(0, 1, open_most=True)), str(Range(0)), str(Range())
    ('in [0, 1)', '>= 0', 'that is finite')

    Attributes:
      least: lower end.
      most: upper end.
      open_least: whether the lower end is excluded.
      open_most: whether the upper end is excluded.
    """

    least: float = -math.inf
    most: float = math.inf
    open_least: bool = False
    open_most: bool = False

    def holds(self, value: float) -> bool:
        """Returns whether a number is in the interval, and 0 or from SMALLEST to LARGEST, whatever its sign."""
        if not abs(value) <= LARGEST or 0 < abs(value) < SMALLEST:
            return False
        above = value > self.least if self.open_least else value >= self.least
        return above and (value < self.most if self.open_most else value <= self.most)

    def __str__(self) -> str:
        least, most = (f"{end:.7g}" for end in (self.least, self.most))
        if self.most == math.inf:
            return f"{'>' if self.open_least else '>='} {least}" if self.least > -math.inf else "that is finite"
        return f"in {'(' if self.open_least else '['}{least}, {most}{')' if self.open_most else ']'}"


Finite = Annotated[float, Range()]
NonNegative = Annotated[float, Range(0)]
Positive = Annotated[float, Range(0, open_least=True)]
Share = Annotated[float, Range(0, 1)]
PositiveShare = Annotated[float, Range(0, 1, open_least=True)]
Decay = Annotated[float, Range(0, 1, open_most=True)]
NonNegativeInt = Annotated[int, Range(0)]
PositiveInt = Annotated[int, Range(1)]


class Kind(NamedTuple):
    """One alternative of an annotation.

    Attributes:
      type: its type.
      range: interval of its numbers; None for all.
      values: of a Literal, its values.
    """

    type: type
    range: Range | None = None
    values: tuple = ()

    def holds(self, value: Any) -> bool:
        """Returns whether a value has the type, exactly for the types that texts can spell, and is in the range."""
        if self.values:
            return any(value == other and type(value) is type(other) for other in self.values)
        if self.type not in _KINDS:
            return isinstance(value, self.type)
        kind = type(value)
        if kind is not self.type and not (self.type is float and kind is int):
            return False
        return self.range is None or self.range.holds(value)

    def __str__(self) -> str:
        if self.values:
            return ", ".join(str(value) or "''" for value in self.values)
        name = _KINDS.get(self.type, self.type.__name__)
        return f"{name} {self.range}" if self.range else name


class Values(NamedTuple):
    """The values that a parameter accepts.

    Attributes:
      kinds: alternatives; () accepts every value.
    """

    kinds: tuple[Kind, ...] = ()

    def accept(self, value: Any, text: str | None = None) -> Any:
        """Returns a value as the parameter receives it: text that a choice spells like a number stays that `text`.

        Raises:
          ValueError: when it is not accepted, with the end of a message: 'must be a number >= 0.'
        """
        value = value.item() if isinstance(value, np.generic) else value
        if not self.kinds or any(kind.holds(value) for kind in self.kinds):
            return value
        spelled = "none" if value is None else str(value)
        for kind in self.kinds:
            if (kind.type is str and not kind.values) or spelled in kind.values:
                return spelled if text is None or kind.values else text
        raise ValueError(self.refusal(value))

    def refusal(self, value: Any) -> str:
        """Returns the end of the message about a value that is not accepted."""
        size = abs(value) if isinstance(value, (int, float)) and any(kind.range for kind in self.kinds) else 0
        if 0 < size < SMALLEST:
            return f"is 0 in 32-bit arithmetic; set 0, or at least {SMALLEST:.1e}."
        if LARGEST < size < math.inf:
            return f"is infinite in 32-bit arithmetic; set at most {LARGEST:.1e}."
        literals = [other for kind in self.kinds for other in kind.values]
        wanted = " or ".join(map(str, self.kinds))
        if isinstance(value, float) and not math.isfinite(value):
            wanted = wanted.replace(" that is finite", "").replace("a number", "a finite number")
        texts = [text for text in literals if isinstance(text, str)]
        suggestion = nearest(value, texts) if value and isinstance(value, str) else ""
        return f"must be {'one of ' if self.kinds[0].values else ''}{wanted}.{suggestion}"

    def __str__(self) -> str:
        """The restriction in a list of parameters, such as '>= 0'; '' for types and values that have names."""
        numbers = [f"{'an integer ' if k.type is int else ''}{k.range}" for k in self.kinds if k.range]
        return " or ".join([*numbers, *("none" for kind in self.kinds if numbers and kind.type is type(None))])


def values_of(parameter: inspect.Parameter) -> Values:
    """Returns the values that a parameter accepts, by its annotation or else by the type of its default."""
    if parameter.annotation is not parameter.empty:
        return Values(_kinds(parameter.annotation))
    if parameter.default in (None, parameter.empty) or type(parameter.default) not in _KINDS:
        return Values()
    return Values((Kind(type(parameter.default)),))


def check_values(owner: str, wanted: Any, **values) -> None:
    """Raises UserError unless values, which are not parameters of a registered builder, are accepted.

    Args:
      owner: object that the values belong to, for the message.
      wanted: a Range, or an annotation such as PositiveInt | None.
      values: name -> value.
    """
    for name, value in values.items():
        check_value(f"{owner}: {name}", wanted, value.item() if isinstance(value, np.generic) else value)


def check_value(name: str, annotation: Any, value: Any) -> None:
    """Raises UserError unless a value is of the type, or a subclass, and in the range of an annotation."""
    accepted = Values(_kinds(annotation))
    plain = next((kind(value) for kind in (bool, int, float, str) if isinstance(value, kind)), value)
    if accepted.kinds and not any(kind.holds(plain) for kind in accepted.kinds):
        raise UserError(f"{name}={value!r} {accepted.refusal(plain)}")
    check_size(name, plain)


def one_of(name: str, value: Any, allowed: Iterable) -> None:
    """Raises UserError unless a value is one of the allowed ones; the message names the nearest match."""
    if value not in allowed:
        suggestion = nearest(value, [other for other in allowed if other]) if isinstance(value, str) else ""
        raise UserError(f"{name}={value} must be one of {', '.join(map(format_value, allowed))}.{suggestion}")


def _kinds(annotation: Any) -> tuple[Kind, ...]:
    """Returns the alternatives of an annotation; () if one of them accepts every value."""
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if isinstance(annotation, Range):
        return (Kind(float, annotation),)
    if origin is Annotated:
        limits = next((note for note in args[1:] if isinstance(note, Range)), None)
        ranged = lambda kind: kind._replace(range=limits or kind.range) if kind.type in (int, float) else kind
        return tuple(map(ranged, _kinds(args[0])))
    if origin is Literal:
        return (Kind(type(args[0]), None, args),)
    if origin in (typing.Union, types.UnionType):
        alternatives = [_kinds(arg) for arg in args]
        return sum(alternatives, ()) if all(alternatives) else ()
    is_class = isinstance(annotation, type) and origin is None and annotation is not Any
    return (Kind(annotation),) if is_class else ()
