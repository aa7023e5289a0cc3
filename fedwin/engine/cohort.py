"""A cohort in a round: what one client is handed, and how its work is mapped over the clients and summed."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec

from fedwin import core, tree
from fedwin.data.federation import ShardedStore, Store
from fedwin.engine.strategy import AXIS, Strategy

# Leaves of clients' rows up to this size travel between devices in one packet.
PACKED_BYTES = 1 << 20


class SharedInputs(NamedTuple):
    """What all clients of a phase see.

    Attributes:
      down: what the server broadcasts.
      stats: the model's statistics.
      round: completed rounds, int32 [].
      store: the clients' data, on a mesh perhaps split over it.
    """

    down: Any
    stats: Any
    round: Any
    store: Store | ShardedStore


class ClientInputs(NamedTuple):
    """What differs by client, with a leading axis C.

    Attributes:
      id: global number, -1 = padding.
      row: its row of the store.
      slot: its row of the client table.
      key: its PRNG key of this phase.
      state: its row of the table, as it was before this phase.
    """

    id: Any
    row: Any
    slot: Any
    key: Any
    state: Any


def client_function(client_part: Callable, weighting: str, n_max: int) -> Callable:
    """Returns (shared, own) -> (what is summed, row) for one client.

    Args:
      client_part: what the clients of a phase do, (down, Client) -> Update.
      weighting: 'samples' or 'uniform', of the mean of statistics.
      n_max: examples that a client's index has room for.
    """

    def one(shared: SharedInputs, own: ClientInputs):
        assert isinstance(shared.store, Store)
        present = own.id >= 0
        client = shared.store.client(
            id=own.id,
            row=jnp.maximum(own.row, 0),
            slot=own.slot,
            key=own.key,
            round=shared.round,
            state=own.state,
            stats=shared.stats,
            n_max=n_max,
            present=present,
        )
        update = client_part(shared.down, client)
        stats = (
            () if tree.is_empty(update.stats) else core.mean(update.stats, core.aggregation_weight(client, weighting))
        )
        summed = (update.message, stats, update.metrics)
        # where, not multiply: whatever padding computed (NaN too) is left out.
        summed = tree.map(lambda x: jnp.where(present, x, jnp.zeros_like(x)), summed)
        return summed, update.state

    return one


def _all_gather(rows):
    """Brings the rows [c, ...] of every device to all of them, [C, ...]: one exchange for all small leaves of a dtype.

    Devices of a CPU meet for every exchange, which costs more than a small model's rows; large leaves are not copied
    together.
    """
    leaves, treedef = jax.tree.flatten(rows)
    together: dict = {}
    for place, leaf in enumerate(leaves):
        large = leaf.size * leaf.dtype.itemsize > PACKED_BYTES
        together.setdefault((leaf.dtype, place if large else None), []).append(place)
    for places in together.values():
        some = [leaves[place] for place in places]
        packed = jnp.concatenate([leaf.reshape(len(leaf), math.prod(leaf.shape[1:])) for leaf in some], 1)
        ends = np.cumsum([math.prod(leaf.shape[1:]) for leaf in some])[:-1]
        for place, part in zip(places, jnp.split(lax.all_gather(packed, AXIS, tiled=True), ends, 1), strict=True):
            leaves[place] = part.reshape(len(part), *leaves[place].shape[1:])
    return jax.tree.unflatten(treedef, leaves)


def map_cohort(one: Callable, shared, own, strategy: Strategy):
    """Maps a function over the cohort and sums; the result is the same for every strategy, to rounding.

    Args:
      one: (shared, own) -> (what is summed, row), as from `work`.
      shared: what all clients see.
      own: what differs by client [C, ...]; C must be a multiple of strategy.multiple.
      strategy: how the cohort is mapped.

    Returns:
      (sums, rows [C, ...]).
    """
    if strategy.mesh is not None:
        inner = strategy._replace(mesh=None)
        everywhere, apart = PartitionSpec(), PartitionSpec(AXIS)
        seen: Any = everywhere
        if split := isinstance(shared, SharedInputs) and isinstance(shared.store, ShardedStore):
            seen = SharedInputs(everywhere, everywhere, everywhere, apart)  # type: ignore[arg-type]

        def shard(shared, own):
            if split:
                shared = shared._replace(store=shared.store.own)
            sums, rows = map_cohort(one, shared, own, inner)
            return lax.psum(sums, AXIS), _all_gather(rows)

        mapped = jax.shard_map(shard, mesh=strategy.mesh, in_specs=(seen, apart), out_specs=everywhere, check_vma=False)
        return mapped(shared, own)

    size = jax.tree.leaves(own)[0].shape[0]
    chunk = min(strategy.chunk or size, size)
    if chunk == size and size > 1:
        sums, rows = jax.vmap(one, (None, 0))(shared, own)
        return tree.map(lambda x: jnp.sum(x, 0), sums), rows

    # A chunk of one client runs without vmap: batched products of batch size 1 are slow.
    if chunk == 1:
        several = one
        split = own
    else:

        def several(shared, part):
            sums, rows = jax.vmap(one, (None, 0))(shared, part)
            return tree.map(lambda x: jnp.sum(x, 0), sums), rows

        split = tree.map(lambda x: x.reshape(size // chunk, chunk, *x.shape[1:]), own)
    # Needed for shapes and in the loop: jit traces it once, and leaves no trace of itself.
    several = jax.jit(several, inline=True)
    first = tree.map(lambda x: x[0], split)
    zeros = tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(several, shared, first)[0])

    def step(total, part):
        sums, rows = several(shared, part)
        return tree.add(total, sums), rows

    sums, rows = lax.scan(step, zeros, split)
    if chunk > 1:
        rows = tree.map(lambda x: x.reshape(size, *x.shape[2:]), rows)
    return sums, rows
