"""A user's function, traced: what goes wrong in it is reported in its author's words."""

import functools
import inspect
import os
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from fedwin.core import IgnoresKey
from fedwin.errors import UserError

# Every client runs one traced program: nothing in it may depend on a value by Python's own means.
_BY_VALUE = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.NonConcreteBooleanIndexError,
)


class UserFunction(NamedTuple):
    """One function of an algorithm.

    Attributes:
      name: the word for it in core.algorithm.
      function: the function.
      takes: its arguments, as its author should have written them.
      returns: what it should return.
    """

    name: str
    function: Any
    takes: str
    returns: str

    def __str__(self) -> str:
        own, line = _code(self.function)
        if line is None:
            return f"{self.name} ({own})"
        return f"{self.name} ({own}, {line})" if own != self.name else f"{self.name} ({line})"

    def slip(self, what: str) -> UserError:
        """Returns the error that says what is wrong here and what should have been returned."""
        return UserError(f"{self} {what}; it should take {self.takes} and return {self.returns}.")

    def trace(self, *args, hint: str = "") -> Any:
        """Returns what the function returns for arguments of these shapes, as shapes.

        Args:
          *args: arrays or jax.ShapeDtypeStruct.
          hint: what to add where the function fails.

        Raises:
          UserError: when the function cannot be called so, or raises.
        """
        written = _written(self.function)
        if not _callable_with(written, len(args) - (written is not self.function)):
            raise self.slip(f"takes {inspect.signature(written)}")
        try:
            return jax.eval_shape(self.function, *args)
        except UserError as error:
            raise UserError(f"{self}: {error}") from error
        except Exception as error:
            raise self.slip(f"fails{_line(written, error)}: {_reason(error)}{hint and '; ' + hint}") from error


def _written(function: Callable) -> Callable:
    """The function as its author wrote it, without what was put around it."""
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
    """(name, file:line) of a function; the line is None for what is not written in Python."""
    function = _written(function)
    code = getattr(function, "__code__", None)
    name = getattr(function, "__name__", type(function).__name__).strip("<>")
    if code is None:
        return name, None
    near = os.path.relpath(code.co_filename)
    file = code.co_filename if near.startswith("..") or code.co_filename.startswith("<") else near
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
    """Where in the user's file an exception was raised: ` in line 12`."""
    code = getattr(function, "__code__", None)
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if code is not None and frame.filename == code.co_filename]
    return f" in line {lines[-1]}" if lines else ""


def _reason(error: Exception) -> str:
    """An exception in one line."""
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
