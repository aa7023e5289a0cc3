"""Wrappers: what changes training around any algorithm. A new file that registers one is found by itself."""

from collections.abc import Iterable

from fedwin.core import Algorithm, Setting
from fedwin.local import Solver
from fedwin.registry import Choice, import_all
from fedwin.wrappers.base import WRAPPERS, Wrapped, Wrapper, after, before, unchanged, unwrapped_names
from fedwin.wrappers.ima_rate import SCHEDULES, ima_rate

import_all(__name__, __path__)

__all__ = [
    "SCHEDULES",
    "WRAPPERS",
    "Wrapped",
    "Wrapper",
    "after",
    "before",
    "build_all",
    "ima_rate",
    "unchanged",
    "unwrapped_names",
    "wrapped",
    "wrapped_solver",
]


def build_all(choices: Iterable[str | Choice], setting: Setting) -> list[Wrapper]:
    """Builds wrappers, in the order in which they are applied."""
    return [WRAPPERS.build(choice, setting) for choice in choices]


def wrapped(algorithm: Algorithm, wrappers: Iterable[Wrapper]) -> Algorithm:
    """Returns the algorithm with all wrappers around it, the last one outermost."""
    for wrapper in wrappers:
        algorithm = wrapper.algorithm(algorithm)
    return algorithm


def wrapped_solver(solve: Solver, wrappers: Iterable[Wrapper]) -> Solver:
    """Returns the local solver with the learning rate and epochs of all wrappers."""
    for wrapper in wrappers:
        solve = wrapper.solver(solve)
    return solve
