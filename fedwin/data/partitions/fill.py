"""Drawing without replacement from pools that run out, many draws at a time.

A draw for a client picks pool c with probability w_c / sum(w), w being zero on empty pools, and pops one example. The
law changes only when a pool runs empty, so whole blocks of draws are made at once and cut right after the draw that
empties a pool; what follows the cut is drawn again under the new law. This is the one-at-a-time process exactly.

Where all of a client's weight sits on empty pools, every remaining example is equally likely; each such draw is
counted as a fallback.
"""

import numpy as np

from fedwin.data.dataset import offsets


class Pools:
    """Shuffled pools of examples with a pointer each.

    Args:
      pool: [N] pool of each example, in 0..num_pools-1.
    """

    def __init__(self, pool: np.ndarray, num_pools: int, rng: np.random.Generator):
        shuffled = rng.permutation(len(pool))
        self.rows = shuffled[np.argsort(pool[shuffled], kind="stable")]
        self.left = np.bincount(pool, minlength=num_pools).astype(np.int64)
        self.next = offsets(self.left)[:-1]

    def pop(self, choice: np.ndarray) -> np.ndarray:
        """Removes one example for each pool named in `choice`, in order, and returns the examples."""
        counts = np.bincount(choice, minlength=len(self.left))
        rows = self.rows[self.next[choice] + repeats(choice, counts)]
        self.next += counts
        self.left -= counts
        return rows


def repeats(choice: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Returns how often choice[i] occurs before position i."""
    by_value = np.argsort(choice, kind="stable")
    starts = np.cumsum(counts) - counts
    earlier = np.empty(len(choice), np.int64)
    earlier[by_value] = np.arange(len(choice)) - np.repeat(starts, counts)
    return earlier


def pick(weights: np.ndarray, u: np.ndarray) -> np.ndarray:
    """Returns indices drawn from weights [..., C]: the inverse of their cumulated sum at u in [0, 1)."""
    cumulated = np.cumsum(weights, axis=-1)
    cumulated /= cumulated[..., -1:]
    # The last index of positive weight is where the sum first reaches its end, so rounding cannot pick past it.
    return (cumulated <= u[..., None]).sum(-1) if weights.ndim > 1 else np.searchsorted(cumulated, u, side="right")


def sequential(pools: Pools, weights, visit, per_client: int, rng) -> tuple[list[np.ndarray], int]:
    """Fills the clients in `visit` completely, one after another.

    Args:
      pools: the examples of each class.
      weights: (client, open [C]) -> [C], the weight of each pool, zero where not open.
      visit: the order of the clients [K].
      per_client: examples of each client.
      rng: draws them.

    Returns:
      One array of per_client rows per client, in client order, and the number of fallbacks.
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
    """Gives every client one example per sweep, per_client sweeps, each over a fresh permutation of the clients.

    Args:
      pools: the examples of each class.
      q: weights of the clients [K, C].
      per_client: examples of each client.
      rng: draws them.
    """
    rows = np.empty((len(q), per_client), np.int64)
    fallbacks = 0
    for sweep in range(per_client):
        waiting = rng.permutation(len(q))
        while len(waiting):
            w = q[waiting] * (pools.left > 0)
            lost = ~(w.sum(1) > 0)
            w[lost] = pools.left
            choice = pick(w, rng.random(len(waiting)))
            earlier = repeats(choice, np.bincount(choice, minlength=len(pools.left)))
            ends = earlier + 1 == pools.left[choice]
            block = int(ends.argmax()) + 1 if ends.any() else len(waiting)
            if lost.any():
                # A fallback's weights are the pools' present sizes; drawn with the block's first sizes it is accepted
                # with the ratio of the two, and the first one refused starts the next block.
                refused = lost & (rng.random(len(waiting)) * pools.left[choice] >= pools.left[choice] - earlier)
                block = min(block, int(refused.argmax())) if refused.any() else block
            fallbacks += int(lost[:block].sum())
            rows[waiting[:block], sweep] = pools.pop(choice[:block])
            waiting = waiting[block:]
    return list(rows), fallbacks
