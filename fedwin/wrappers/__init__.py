"""Wrappers: modifications of training that apply to any algorithm.

Every module of this package is imported, so a new file that registers a wrapper needs no other change.
"""

from collections.abc import Iterable

from fedwin.core import Algorithm, Setting
from fedwin.errors import UserError
from fedwin.local import Solver
from fedwin.registry import Choice, import_all
from fedwin.wrappers.accounting import Privacy
from fedwin.wrappers.asynchronous import ASYNCHRONOUS, STALENESS, asynchronous
from fedwin.wrappers.base import WRAPPERS, Wrapper, after, unchanged, unwrapped_names

import_all(__name__, __path__)

__all__ = [
    "ASYNCHRONOUS",
    "STALENESS",
    "WRAPPERS",
    "Wrapper",
    "after",
    "asynchronous",
    "build_all",
    "privacy_of",
    "together",
    "unchanged",
    "unwrapped_names",
    "wrapped",
    "wrapped_solver",
]


# Wrappers of what is sent either way, which would change the part of the model that 'local' keeps.
BEFORE_LOCAL = ("dp", "feedback", "primal", "quantize", "schedule_free", "topk")


def build_all(choices: Iterable[str | Choice], setting: Setting) -> list[Wrapper]:
    """Builds wrappers by name.

    Args:
      choices: such as 'clip:norm=1.0', in the order in which they are applied.

    Raises:
      UserError: when a choice is invalid or given twice, or wrappers can't be combined in this order.
    """
    return together([WRAPPERS.build(choice, setting) for choice in choices])


def together(built: list[Wrapper]) -> list[Wrapper]:
    """Returns built wrappers; raises UserError if one is given twice, or they can't be combined in this order."""
    names = [wrapper.name for wrapper in built]
    if repeated := next((name for name in names if names.count(name) > 1), None):
        raise UserError(f"wrap={repeated}: wrapper '{repeated}' is given twice; keep one.")
    before: list[str] = []
    for wrapper in built:
        if wrapper.name == "local" and (changing := [name for name in before if name in BEFORE_LOCAL]):
            raise UserError(
                f"wrap={changing[-1]}: before --wrap=local it would also change the part that is never sent; give "
                f"--wrap=local first."
            )
        if wrapper.name == "topk" and "quantize" in before:
            raise UserError("wrap=quantize: --wrap=topk after it adds what is not rounded; set bits= of topk instead.")
        before += [wrapper.name] if wrapper.algorithm is not unchanged else []
    return built


def wrapped(algorithm: Algorithm, wrappers: Iterable[Wrapper]) -> Algorithm:
    """Applies built wrappers to an algorithm; the last one becomes the outermost."""
    for wrapper in wrappers:
        algorithm = wrapper.algorithm(algorithm)
        if not isinstance(algorithm, Algorithm):
            raise UserError(f"wrapper '{wrapper.name}': it turns an algorithm into {algorithm}; return core.Algorithm.")
    return algorithm


def privacy_of(wrappers: Iterable[Wrapper]) -> Privacy | None:
    """Returns the guarantee of a private run, or None.

    Raises:
      UserError: the package that computes epsilon is not installed.
    """
    guarantee = next((wrapper.privacy for wrapper in wrappers if wrapper.privacy is not None), None)
    if guarantee is not None:
        guarantee.check()
    return guarantee


def wrapped_solver(solve: Solver, wrappers: Iterable[Wrapper]) -> Solver:
    """Applies the wrappers' learning rates, epochs and bounds to a local solver."""
    for wrapper in wrappers:
        name, *functions, _ = wrapper
        if not isinstance(name, str):
            raise UserError(f"a Wrapper begins with its name, a text, not {name!r}.")
        if wrong := [value for value in functions if value is not None and not callable(value)]:
            raise UserError(f"wrapper '{name}': {wrong[0]!r} must be a function; see fedwin.wrappers.Wrapper.")
        solve = wrapper.solver(solve)
    return solve
