"""Communication: bytes that one client receives and sends in one round, counted from the messages themselves.

`Phase.wire` selects the transmitted parts. Of these, what the server knows is not counted: the weight of a Mean (N_i),
and what is core.DerivedFromStep. The GHB paper's printed constants are stored next to the counts in
`algorithms.ALGORITHMS.entries[name].facts['reported']`.
"""

from collections.abc import Iterator
from typing import NamedTuple

import jax

from fedwin import core, engine, tree
from fedwin.core import Algorithm
from fedwin.engine.cohort import client_shapes, total_of_one
from fedwin.residence.rows import row_shapes
from fedwin.tree import PyTree


class Bytes(NamedTuple):
    """Bytes that one client receives (down) and sends (up) in one round."""

    down: int
    up: int


def communication(algorithm: Algorithm, params, store: engine.Store, n_max: int = 1, stats=()) -> Bytes:
    """Returns the bytes per client and round, summed over the algorithm's phases, without running anything.

    Model statistics, if any, are transmitted: down unless the client has them already, up from every phase that
    returns them.
    """
    down, up, unknown = 0, 0, True
    for phase, received, update in _round_trips(algorithm, params, store, n_max, stats):
        sent = phase.wire(received, update.message)
        down += _nbytes(sent[0]) + (tree.nbytes(stats) if unknown else 0)
        up += _nbytes(sent[1]) + tree.nbytes(update.stats)
        # Only what clients return changes the statistics: a later phase on the old ones need not send them.
        unknown = not tree.is_empty(update.stats)
    return Bytes(down, up)


def stacked_bytes(algorithm: Algorithm, params, store: engine.Store, n_max: int, stats) -> int:
    """Returns the bytes of one client's largest message that is stacked (Phase.aggregate); 0 if all are summed."""
    if not any(phase.aggregate for phase in algorithm.phases):
        return 0
    round_trips = _round_trips(algorithm, params, store, n_max, stats)
    return max((tree.nbytes(update.message) for phase, _, update in round_trips if phase.aggregate), default=0)


def _round_trips(
    algorithm: Algorithm, params, store: engine.Store, n_max: int, stats
) -> Iterator[tuple[core.Phase, PyTree, core.Update]]:
    """Yields (phase, shapes of what a client receives, shapes of its Update) of all phases with clients."""
    state = jax.eval_shape(algorithm.init, params, jax.random.key(0))
    client = client_shapes(store, row_shapes(algorithm, params), stats, n_max)
    for phase in algorithm.phases:
        if phase.client is None:
            continue
        received = jax.eval_shape(phase.broadcast, params, state)
        update = jax.eval_shape(phase.client, received, client)
        yield phase, received, update
        # A later phase sees the state that the earlier ones leave behind.
        total = total_of_one(phase, update.message)
        params, state = jax.eval_shape(phase.server, params, state, total, client.round)


def _nbytes(message) -> int:
    sent = lambda part: part.total if isinstance(part, core.Mean) else ()
    return tree.nbytes(tree.map_nodes(sent, message, core.Mean, core.DerivedFromStep))
