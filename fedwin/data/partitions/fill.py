"""Draws without replacement from pools of examples that run out, many draws at a time.

A draw for a client picks pool c with probability w_c / sum(w), where w is zero for empty pools, and removes one example
from it. The distribution changes only when a pool runs empty, so blocks of draws are made at once and cut after the
draw that empties a pool; the draws after the cut are repeated with the new weights. This is exactly the one-at-a-time
process.

If all of a client's weight is on empty pools, every remaining example is equally likely; each such draw counts as a
fallback.
"""

import numpy as np

from fedwin.data.dataset import offsets


class Pools:
    """Shuffled pools of examples, each with a pointer to its next example, from the pool of each example [N]."""

    def __init__(self, pool: np.ndarray, num_pools: int, rng: np.random.Generator):
        shuffled = rng.permutation(len(pool))
        self.rows = shuffled[np.argsort(pool[shuffled], kind="stable")]
        self.left = np.bincount(pool, minlength=num_pools).astype(np.int64)
        self.next = offsets(self.left)[:-1]

    def pop(self, choice: np.ndarray) -> np.ndarray:
        """Removes one example from each pool in `choice` [n], in order, and returns the examples [n]."""
        counts = np.bincount(choice, minlength=len(self.left))
        rows = self.rows[self.next[choice] + repeats(choice, counts)]
        self.next += counts
        self.left -= counts
        return rows


def repeats(choice: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Counts how often choice[i] occurs before position i, given counts of each value in `choice` [n]."""
    by_value = np.argsort(choice, kind="stable")
    starts = np.cumsum(counts) - counts
    earlier = np.empty(len(choice), np.int64)
    earlier[by_value] = np.arange(len(choice)) - np.repeat(starts, counts)
    return earlier


def pick(weights: np.ndarray, u: np.ndarray) -> np.ndarray:
    """Draws indices in proportion to weights [..., C], by inverting their cumulative sum at uniform numbers u."""
    cumulative = np.cumsum(weights, axis=-1)
    cumulative /= cumulative[..., -1:]
    # The sum first reaches its end at the last index of positive weight, so rounding cannot pick a later one.
    return (cumulative <= u[..., None]).sum(-1) if weights.ndim > 1 else np.searchsorted(cumulative, u, side="right")


def sequential(pools: Pools, weights, visit, per_client: int, rng) -> tuple[list[np.ndarray], int]:
    """Fills the clients completely, one after another.

    Args:
      weights: function (client, which pools are open [C]) -> weight of each pool [C], zero for pools that are not open.
      visit: order of the clients [K].

    Returns:
      (one array of per_client rows per client, number of fallbacks).
    """
    lists: list = [None] * len(visit)
    fallbacks = 0
    for k in visit:
        taken, need = [], per_client
        while need:
            w = weights(k, pools.left > 0)
            if w.sum() > 0:
                choice = pick(w, rng.random(need))
                counts = np.bincount(choice, minlength=len(pools.left))
                ends = repeats(choice, counts) + 1 == pools.left[choice]
                if ends.any():
                    choice = choice[: int(ends.argmax()) + 1]
            else:
                counts = rng.multivariate_hypergeometric(pools.left, need, method="marginals")
                choice = rng.permutation(np.repeat(np.arange(len(counts)), counts))
                fallbacks += need
            taken.append(pools.pop(choice))
            need -= len(choice)
        lists[k] = np.concatenate(taken)
    return lists, fallbacks


def rotating(pools: Pools, q: np.ndarray, per_client: int, rng) -> tuple[list[np.ndarray], int]:
    """Gives every client one example per sweep, each sweep in a new random order of the clients.

    Pool c has the weight q[k, c] for client k; arguments and result otherwise as for `sequential`.
    """
    rows = np.empty((len(q), per_client), np.int64)
    fallbacks = 0
    for sweep in range(per_client):
        waiting = rng.permutation(len(q))
        while len(waiting):
            w = q[waiting] * (pools.left > 0)
            is_fallback = ~(w.sum(1) > 0)
            w[is_fallback] = pools.left
            choice = pick(w, rng.random(len(waiting)))
            earlier = repeats(choice, np.bincount(choice, minlength=len(pools.left)))
            ends = earlier + 1 == pools.left[choice]
            block = int(ends.argmax()) + 1 if ends.any() else len(waiting)
            if is_fallback.any():
                # A fallback's weights are the current sizes of the pools. It is drawn with the sizes at the start of
                # the block and accepted with the ratio of both; the first rejected one starts the next block.
                rejected = is_fallback & (rng.random(len(waiting)) * pools.left[choice] >= pools.left[choice] - earlier)
                block = min(block, int(rejected.argmax())) if rejected.any() else block
            fallbacks += int(is_fallback[:block].sum())
            rows[waiting[:block], sweep] = pools.pop(choice[:block])
            waiting = waiting[block:]
    return list(rows), fallbacks
