"""Rings of checkpoints whose run had another number of rounds, or was written when rings were longer than any run."""

from typing import Any

import numpy as np

from fedwin.residence.ring_store import FiledRing

Leaves = dict[str, Any]


def fitted(leaves: Leaves, shapes: dict[str, tuple[int, ...]]) -> Leaves:
    """Returns leaves whose rings have as many slots as a run gives them, wherever that loses nothing.

    A window or a delay that is longer than its run has room for that run's models only. As long as none has left it,
    vector number n lies in slot n - 1, whatever the length.

    Args:
      leaves: of a checkpoint, by name.
      shapes: name -> shape, as the run has them.
    """
    changed: Leaves = {}
    for name, ring in leaves.items():
        head, _, field = name.rpartition("ring")
        wanted = shapes.get(name, ring.shape)
        if field or f"{head}count" not in leaves or wanted == ring.shape or wanted[1:] != ring.shape[1:]:
            continue
        kept = min(len(ring), wanted[0])
        # A delay line has a slot per round that it spans; a window has one more, for the vector that leaves it.
        room = kept if f"{head}oldest" in leaves else kept - 1
        if leaves[f"{head}count"] > room:
            continue
        if isinstance(ring, FiledRing):
            changed[name] = ring.of_length(wanted[0])
        else:
            changed[name] = np.zeros(wanted, ring.dtype)
            changed[name][:kept] = ring[:kept]
    return leaves | changed
