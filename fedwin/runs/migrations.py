"""What checkpoints of earlier formats lack, filled in from what they hold."""

from collections.abc import Callable

import numpy as np

from fedwin.window import LARGEST

Leaves = dict[str, np.ndarray]


def _spoiled(leaves: Leaves) -> Leaves:
    """Format 2 -> 3: windows know when they last took in a vector that has no mean, and leave it out of their sums."""
    more: Leaves = {}
    for name, ring in leaves.items():
        head, _, field = name.rpartition("ring")
        if field or f"{head}sums.0" not in leaves:
            continue
        count, slots = int(leaves[f"{head}count"]), len(ring)
        # Vector number n (from 1) lies in slot (n - 1) % slots.
        numbers = range(max(count - slots, 0) + 1, count + 1)
        bad = [n for n in numbers if not np.linalg.norm(ring[(n - 1) % slots].astype(np.float64)) <= LARGEST]
        more[f"{head}spoiled"] = np.asarray(max(bad, default=0), np.int32)
    return leaves | more


# Format -> what makes its leaves those of the next one; formats without an entry differ in nothing that is stored.
MIGRATIONS: dict[int, Callable[[Leaves], Leaves]] = {2: _spoiled}


def migrated(leaves: Leaves, written: int, wanted: int) -> Leaves:
    """Returns the leaves of a checkpoint of format `written` as format `wanted` has them."""
    for number in range(written, wanted):
        leaves = MIGRATIONS.get(number, lambda same: same)(leaves)
    return leaves
