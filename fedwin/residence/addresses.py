"""From clients' global numbers to rows of what a dispatch holds."""

import numpy as np


def distinct(ids: np.ndarray) -> np.ndarray:
    """Returns the distinct clients of `ids` (-1 = padding), ascending."""
    return np.unique(ids[ids >= 0])


def places(ids: np.ndarray, held: np.ndarray, padding: int) -> np.ndarray:
    """Returns the place of every client among those that are held, int32 in the shape of `ids`.

    Args:
      ids: clients, -1 = padding.
      held: distinct clients, ascending, all of `ids` among them.
      padding: the place of padding.
    """
    return np.where(ids >= 0, np.searchsorted(held, np.maximum(ids, 0)), padding).astype(np.int32)
