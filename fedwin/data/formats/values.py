"""Checks numbers read from files before they are cast: NumPy casts wrap, truncate and round silently.

Wrong values raise ValueError with the record; `naming` adds the file and the client.
"""

import contextlib
import math
from collections.abc import Iterator

import numpy as np

from fedwin.data.formats import files
from fedwin.errors import UserError

# Raised by the conversion of damaged records; RecursionError by JSON of many brackets.
RECORD_ERRORS = (ValueError, LookupError, TypeError, OverflowError, AttributeError, RecursionError, MemoryError)


@contextlib.contextmanager
def naming(where: object) -> Iterator[None]:
    """Context manager that converts the errors of damaged records to a one-line UserError that begins with `where`."""
    try:
        yield
    except UserError:
        raise
    except RECORD_ERRORS as error:
        raise UserError(f"{where}: {'there is no ' * isinstance(error, KeyError)}{files.one_line(error)}.") from error


def first_true(bad: np.ndarray) -> tuple[int, ...]:
    """Returns the position of the first True in an array."""
    return tuple(int(i) for i in np.unravel_index(int(bad.argmax()), bad.shape))


def within(values, low: int, high: int, what: str) -> np.ndarray:
    """Returns values [N, ...] as an array; they must be whole numbers in low..high, `what` is a noun for one of them.

    Raises:
      ValueError: naming the first record with another value.
    """
    values = np.asarray(values)
    if values.dtype.kind not in "biuf":
        shown = f" '{values.flat[0]}'" if values.size else ""
        raise ValueError(f"{what}{shown} is not a whole number")
    if not values.size:
        return values.astype(np.int64)
    if values.dtype.kind == "f" and not (np.isfinite(values) & (values == np.rint(values))).all():
        at = first_true(~(np.isfinite(values) & (values == np.rint(values))))
        raise ValueError(f"record {at[0] if at else 0}: {what} {values[at]} is not a whole number")
    if values.min() < low or values.max() > high:
        at = first_true((values < low) | (values > high))
        raise ValueError(f"record {at[0] if at else 0}: {what} {values[at]:.0f} is not in {low}..{high}")
    return values


def labels(values, num_classes: int | None = None) -> np.ndarray:
    """Casts labels [N, ...] to int32; they must be whole numbers in 0..num_classes - 1, or >= 0 for None.

    Raises:
      ValueError: naming the first record with another value.
    """
    return within(values, 0, (num_classes or 1 << 31) - 1, "label").astype(np.int32)


def pixels(values, shape: tuple[int, ...]) -> np.ndarray:
    """Casts images of a shape to uint8 [N, *shape]; they must be whole numbers in 0..255.

    Raises:
      ValueError: not whole images, or naming the first record with another value.
    """
    values, each = np.asarray(values), math.prod(shape)
    if not values.size or values.size % each:
        raise ValueError(f"{values.size} pixels are not whole images of {each}")
    return within(values.reshape(-1, *shape), 0, 255, "pixel").astype(np.uint8)
