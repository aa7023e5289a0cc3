"""From clients' global numbers to rows of what a dispatch holds."""

import numpy as np


def distinct(ids: np.ndarray) -> np.ndarray:
    """Returns the distinct clients of `ids` (-1 = padding), ascending."""
    return np.unique(ids[ids >= 0])


def places(ids: np.ndarray, held: np.ndarray, padding: int) -> np.ndarray:
    """Returns the place of every id in the ascending `held`, int32 in the shape of `ids`; `padding` where the id is -1."""
    return np.where(ids >= 0, np.searchsorted(held, np.maximum(ids, 0)), padding).astype(np.int32)
