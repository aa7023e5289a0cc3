"""Functions whose last argument, a PRNG key, their author may leave out."""

import dataclasses
import inspect
from collections.abc import Callable


@dataclasses.dataclass(frozen=True)
class WithoutKey:
    """A function that does not ask for the key, which is called with one as its last argument."""

    function: Callable

    def __call__(self, *args):
        return self.function(*args[:-1])


def taking_key(function: Callable, count: int) -> Callable:
    """Returns a function of `count` arguments, the last of them a key; `function` may take one less.

    What cannot tell its parameters is taken to want no key.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return WithoutKey(function)
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    asks = sum(p.default is p.empty for p in positional) >= count
    return function if asks else WithoutKey(function)
