"""The registry of observers, what observers share, and how a run's observers are built."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax

from fedwin.core import Observer, Setting, Variables
from fedwin.errors import UserError
from fedwin.registry import Choice, Registry, parse

# builder(setting, *, option=...) -> Observer or Shared
OBSERVERS = Registry("observer", rule="rule")


class Average(NamedTuple):
    """The state of a running mean.

    Attributes:
      model: the mean.
      count: models in it, int32 [].
    """

    model: Variables
    count: jax.Array  # type: ignore[assignment]  # a tuple has a method of this name


class SharedObserver(NamedTuple):
    """What a builder returns that shares one observer, and thus one ring, with the others of its family.

    Attributes:
      family: name of the observer that all of them make together.
      name: of this read-out.
      reading: what `build` needs to know of it.
      build: tuple of the family's readings -> Observer.
    """

    family: str
    name: str
    reading: Any
    build: Callable[[tuple], Observer]


def build_all(choices: Iterable[str | Choice], setting: Setting) -> dict[str, Observer]:
    """Builds a run's observers: name of its state -> Observer, one for all choices that share theirs.

    Args:
      choices: e.g. 'wima:window=50', 'ema'.
      setting: what builders may know about the run.

    Raises:
      UserError: when a choice is wrong, or given twice.
    """
    alone: dict[str, Observer] = {}
    shared: dict[str, list[SharedObserver]] = {}
    for choice in choices:
        built = OBSERVERS.build(choice, setting)
        name = built.name if isinstance(built, SharedObserver) else _name(choice)
        if name in alone or any(name == other.name for family in shared.values() for other in family):
            raise UserError(f"observe={choice}: '{name}' is given twice; keep one.")
        if isinstance(built, SharedObserver):
            shared.setdefault(built.family, []).append(built)
        else:
            alone[name] = built
    together = {name: family[0].build(tuple(one.reading for one in family)) for name, family in shared.items()}
    return together | alone


def _name(choice: str | Choice) -> str:
    return (parse(choice) if isinstance(choice, str) else choice).name
