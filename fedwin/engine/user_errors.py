"""Errors in user code: traces a user's function and reports the first error in one line, with its location."""

import functools
import inspect
import os
import traceback
from collections.abc import Callable
from typing import NamedTuple

import jax

from fedwin.core import IgnoresKey
from fedwin.errors import UserError
from fedwin.tree import PyTree

# All clients run one traced program: Python's control flow must not depend on a value.
_BY_VALUE = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.NonConcreteBooleanIndexError,
)


class UserFunction(NamedTuple):
    """A function of an algorithm, written by a user: `name` is the argument of core.algorithm."""

    name: str
    function: PyTree
    takes: str
    returns: str

    def __str__(self) -> str:
        own, line = _code(self.function)
        if line is None:
            return f"{self.name} ({own})"
        return f"{self.name} ({own}, {line})" if own != self.name else f"{self.name} ({line})"

    def error(self, problem: str) -> UserError:
        """Returns the error with a problem (such as "returns None"), the place, and what the function should do."""
        return UserError(f"{self} {problem}; it should take {self.takes} and return {self.returns}.")

    def trace(self, *args, hint: str = "") -> PyTree:
        """Returns the shapes of the function's result for arguments of these shapes.

        Args:
          *args: arrays or jax.ShapeDtypeStruct.
          hint: appended to the message if the function raises.

        Raises:
          UserError: the function does not take this many arguments, raises, or uses a value of another trace.
        """
        keyless = isinstance(self.function, IgnoresKey)
        own = self.function.function if keyless else self.function
        if not _callable_with(own, len(args) - keyless):
            raise self.error(f"takes {inspect.signature(own)}")
        anew = lambda *args: self.function(*args)  # jax would not trace the same function again
        try:
            traced, shapes = jax.make_jaxpr(anew, return_shape=True)(*args)
            if any(isinstance(constant, jax.core.Tracer) for constant in traced.consts):
                raise UserError("a list, a dict or an attribute keeps a value between calls; return it as a state.")
            return shapes
        except UserError as error:
            raise UserError(f"{self}: {error}") from error
        except Exception as error:
            raise self.error(f"fails{_line(_written(own), error)}: {_reason(error)}{hint and '; ' + hint}") from error


def _written(function: Callable) -> Callable:
    """Returns the function as its author wrote it, without wrappers around it."""
    while True:
        if isinstance(function, IgnoresKey):
            function = function.function
        elif isinstance(function, functools.partial):
            function = function.func
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        else:
            return function


def _code(function: Callable) -> tuple[str, str | None]:
    """Returns (name, file:line) of a function; the line is None if it is not written in Python."""
    function = _written(function)
    code = getattr(function, "__code__", None)
    name = getattr(function, "__name__", type(function).__name__).strip("<>")
    if code is None:
        return name, None
    relative = os.path.relpath(code.co_filename)
    file = code.co_filename if relative.startswith("..") or code.co_filename.startswith("<") else relative
    return name, f"{file}:{code.co_firstlineno}"


def _callable_with(function: Callable, count: int) -> bool:
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    except ValueError:
        return True  # a builtin without a signature
    return True


def _line(function: Callable, error: Exception) -> str:
    """Returns the line of the user's file in which an exception was raised, as ` in line 12`."""
    code = getattr(function, "__code__", None)
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if code is not None and frame.filename == code.co_filename]
    return f" in line {lines[-1]}" if lines else ""


def _reason(error: Exception) -> str:
    """Returns an exception in one line."""
    if isinstance(error, _BY_VALUE):
        return (
            "it decides by a value ('if', 'while', 'int()', a length, numpy), but one program serves all clients and "
            "rounds, whose messages have one structure: use jnp.where or jax.lax.cond"
        )
    if isinstance(error, KeyError):
        return f"there is no {error}"
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0].rstrip('.:')}" if text else type(error).__name__


def reads(function: Callable, attribute: str) -> bool:
    """Whether a function's own code names an attribute."""
    code = getattr(_written(function), "__code__", None)
    return code is not None and attribute in code.co_names
