"""Checks numbers read from files before they are cast: NumPy casts wrap, truncate and round silently.

Wrong values raise ValueError with the record; `files.reading` adds the file and the client.
"""

import math

import numpy as np


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
    if values.dtype.kind == "f" and not (whole := np.isfinite(values) & (values == np.rint(values))).all():
        at = tuple(np.argwhere(~whole)[0])
        raise ValueError(f"record {at[0]}: {what} {values[at]} is not a whole number")
    if values.min() < low or values.max() > high:
        at = tuple(np.argwhere((values < low) | (values > high))[0])
        raise ValueError(f"record {at[0]}: {what} {values[at]:.0f} is not in {low}..{high}")
    return values


def labels(values, num_classes: int) -> np.ndarray:
    """Casts labels [N, ...] to int32; they must be whole numbers in 0..num_classes - 1.

    Raises:
      ValueError: naming the first record with another value.
    """
    return within(values, 0, num_classes - 1, "label").astype(np.int32)


def pixels(values, shape: tuple[int, ...]) -> np.ndarray:
    """Casts images of a shape to uint8 [N, *shape]; they must be whole numbers in 0..255.

    Raises:
      ValueError: not whole images, or naming the first record with another value.
    """
    values, each = np.asarray(values), math.prod(shape)
    if not values.size or values.size % each:
        raise ValueError(f"{values.size} pixels are not whole images of {each}")
    return within(values.reshape(-1, *shape), 0, 255, "pixel").astype(np.uint8)
