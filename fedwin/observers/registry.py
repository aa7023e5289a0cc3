"""Registry of observers, the types that they share, and `build_all`, which builds a run's observers."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import jax

from fedwin.core import Observer, Setting, Variables
from fedwin.errors import UserError
from fedwin.registry import Choice, Registry


class Average(NamedTuple):
    """State of a running mean.

    Attributes:
      model: the mean.
      count: number of models in it, int32 [].
    """

    model: Variables
    count: jax.Array  # type: ignore[assignment]  # a tuple has a method of this name


class SharedObserver(NamedTuple):
    """Read-out that shares one observer, and thus one ring buffer, with the other read-outs of its family.

    Attributes:
      family: name of the observer that serves the family.
      name: name of this read-out.
      reading: the specification of this read-out, an argument of `build`.
      build: tuple of the family's readings -> Observer.
    """

    family: str
    name: str
    reading: object
    build: Callable[[tuple], Observer]


# Builders have the signature builder(setting, *, option=...) -> Observer or SharedObserver.
OBSERVERS = Registry("observer", rule="rule", builds=(Observer, SharedObserver))


def build_all(choices: Iterable[str | Choice], setting: Setting) -> dict[str, Observer]:
    """Builds a run's observers.

    Args:
      choices: such as 'wima:window=50' or 'ema'.

    Returns:
      Name -> Observer; read-outs of one family share an observer.

    Raises:
      UserError: when a choice is wrong or given twice.
    """
    single: dict[str, Observer] = {}
    shared: dict[str, list[SharedObserver]] = {}
    for choice in choices:
        built = OBSERVERS.build(choice, setting)
        name = built.name if isinstance(built, SharedObserver) else OBSERVERS.check(choice).name
        if name in single or any(name == member.name for family in shared.values() for member in family):
            raise UserError(f"observe={choice}: '{name}' is given twice; keep one.")
        if isinstance(built, SharedObserver):
            shared.setdefault(built.family, []).append(built)
        else:
            single[name] = built
    combined = {name: family[0].build(tuple(m.reading for m in family)) for name, family in shared.items()}
    return combined | single
