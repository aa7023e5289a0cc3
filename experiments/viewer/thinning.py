"""Thinning of curves: the evaluations of a long curve that are drawn."""

import numpy as np

# Points of all curves of one metric together, and limits for one of them.
TOTAL, FEWEST, MOST = 40_000, 40, 500


def points_per_curve(curves: int) -> int:
    """Returns the number of points of a curve among so many of one metric.

    Args:
      curves: number of curves.
    """
    return min(max(TOTAL // max(curves, 1), FEWEST), MOST)


def kept(rounds: np.ndarray, values: np.ndarray, most: int) -> np.ndarray:
    """Returns the indices of the evaluations that are drawn: all of a curve with at most `most`, else

        the first, the last, and the lowest and the highest of each of (most - 2) // 2 equal spans of rounds

    so that jumps from round to round, and extremes, stay visible. An undefined value (NaN) counts as the highest.

    Args:
      rounds: of the evaluations, increasing [n].
      values: of the metric [n].
      most: number of points, at least 4.

    Returns:
      Indices, increasing [m], m <= most.
    """
    count = len(rounds)
    if count <= most:
        return np.arange(count)
    spans = (most - 2) // 2
    share = (rounds - rounds[0]) / (rounds[-1] - rounds[0])
    span = np.minimum((share * spans).astype(int), spans - 1)
    order = np.lexsort((values, span))
    starts = np.flatnonzero(np.diff(span[order], prepend=-1))
    ends = np.append(starts[1:], count) - 1
    return np.unique(np.concatenate([[0, count - 1], order[starts], order[ends]]))
