"""Maps a phase over the cohort: the inputs of each client, vmap, scan or shard_map, and the sum of their messages."""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec

from fedwin import core, tree
from fedwin.data.federation import ShardedStore, Store
from fedwin.engine.strategy import AXIS, Strategy
from fedwin.tree import PyTree

# Leaves of clients' rows up to this size travel between devices in one packet.
PACKED_BYTES = 1 << 20


class SharedInputs(NamedTuple):
    """Inputs that all clients of a phase share; `down` is what the server broadcasts to them."""

    down: PyTree
    stats: PyTree
    round: jax.Array
    store: Store | ShardedStore


class ClientInputs(NamedTuple):
    """Inputs of a phase that differ by client, with a leading axis C; `place` is the cohort, without its size."""

    place: core.Cohort
    key: jax.Array
    state: PyTree


class StackedRow(NamedTuple):
    """Row of the client table and message (zeros for padding) of every client [C, ...], where these are not summed."""

    state: PyTree
    message: PyTree


def client_function(client_part: Callable, weighting: str, n_max: int, stacked: bool) -> Callable:
    """Returns (SharedInputs, ClientInputs) -> (values to sum over the cohort, row) for one client.

    Args:
      stacked: whether the row is a StackedRow with the message, which is then not summed (Phase.aggregate).
    """

    def one(shared: SharedInputs, own: ClientInputs):
        assert isinstance(shared.store, Store)
        place, store = own.place, shared.store
        client = store.client(place, key=own.key, round=shared.round, state=own.state, stats=shared.stats, n_max=n_max)
        update = client_part(shared.down, client)
        stats = None
        if not tree.is_empty(update.stats):
            stats = core.mean(update.stats, core.aggregation_weight(client, weighting))
        summed = (update.message, stats, update.metrics)
        # where, not multiply: values of padding may be NaN.
        summed = tree.map(lambda x: jnp.where(place.present, x, jnp.zeros_like(x)), summed)
        if stacked:
            message, *others = summed
            return (None, *others), StackedRow(update.state, message)
        return summed, update.state

    return one


def client_shapes(store: Store, row: PyTree, stats: PyTree, n_max: int) -> core.Client:
    """Returns the shapes of a client as an algorithm sees it."""

    def one(store, row, stats):
        zero, key = jnp.zeros((), jnp.int32), jax.random.key(0)
        place = core.Cohort(zero, True, zero, zero)
        return store.client(place, key=key, round=zero, state=row, stats=stats, n_max=n_max)

    return jax.eval_shape(one, store, row, stats)


def skip_absent(function: Callable) -> Callable:
    """Returns a function that computes nothing for padding and clients that do not answer, where it is not vmapped.

    They add zeros to the sums, and their rows are not stored.
    """

    def one(shared: SharedInputs, own: ClientInputs):
        shapes = jax.eval_shape(function, shared, own)
        if any(jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.extended) for leaf in jax.tree.leaves(shapes)):
            return function(shared, own)  # there is no zero of PRNG keys
        return lax.cond(own.place.present, lambda: function(shared, own), lambda: tree.zeros_like(shapes))

    return one


def total_of_one(phase: core.Phase, message):
    """Returns the shapes of the total that a phase's server receives."""
    if phase.aggregate is None:
        return message
    one = tree.map(lambda x: jax.ShapeDtypeStruct((1, *x.shape), x.dtype), message)
    return jax.eval_shape(phase.aggregate, one, jax.ShapeDtypeStruct((1,), bool))


def _all_gather(rows):
    """Brings the rows [c, ...] of every device to all of them, [C, ...]: one exchange for all small leaves of a dtype.

    Devices of a CPU synchronize for every exchange, which costs more than a small model's rows; large leaves are not
    concatenated, which would copy them.
    """
    leaves, treedef = jax.tree.flatten(rows)
    packets: dict = {}
    for place, leaf in enumerate(leaves):
        large = leaf.size * leaf.dtype.itemsize > PACKED_BYTES
        packets.setdefault((leaf.dtype, place if large else None), []).append(place)
    for places in packets.values():
        some = [leaves[place] for place in places]
        packed = jnp.concatenate([leaf.reshape(len(leaf), math.prod(leaf.shape[1:])) for leaf in some], 1)
        ends = np.cumsum([math.prod(leaf.shape[1:]) for leaf in some])[:-1]
        for place, part in zip(places, jnp.split(lax.all_gather(packed, AXIS, tiled=True), ends, 1), strict=True):
            leaves[place] = part.reshape(len(part), *leaves[place].shape[1:])
    return jax.tree.unflatten(treedef, leaves)


def _is_split(node) -> bool:
    return isinstance(node, ShardedStore)


def map_cohort(function: Callable, shared, own, strategy: Strategy):
    """Maps a function over the cohort and sums; the result is the same for every strategy, to rounding.

    Args:
      function: (shared, own) -> (values to sum, row), as from `client_function`.
      shared: inputs that all clients share; of a ShardedStore in them, every device's part is its own.
      own: inputs that differ by client [C, ...]; C must be a multiple of strategy.multiple.

    Returns:
      (sums, rows [C, ...]).
    """
    if strategy.mesh is not None:
        inner = strategy._replace(mesh=None)
        whole, split_over_mesh = PartitionSpec(), PartitionSpec(AXIS)
        shared_spec = jax.tree.map(
            lambda node: split_over_mesh if _is_split(node) else whole, shared, is_leaf=_is_split
        )

        def shard(shared, own):
            shared = jax.tree.map(lambda node: node.own if _is_split(node) else node, shared, is_leaf=_is_split)
            sums, rows = map_cohort(function, shared, own, inner)
            return lax.psum(sums, AXIS), _all_gather(rows)

        mapped = jax.shard_map(
            shard, mesh=strategy.mesh, in_specs=(shared_spec, split_over_mesh), out_specs=whole, check_vma=False
        )
        return mapped(shared, own)

    size = jax.tree.leaves(own)[0].shape[0]
    chunk = min(strategy.chunk or size, size)

    def vmapped(shared, part):
        sums, rows = jax.vmap(function, (None, 0))(shared, part)
        return tree.map(lambda x: jnp.sum(x, 0), sums), rows

    if chunk == size and size > 1:
        return vmapped(shared, own)
    # A chunk of one client runs without vmap: batched products of batch size 1 are slow.
    several, split = function, own
    if chunk > 1:
        several = vmapped
        split = tree.map(lambda x: x.reshape(size // chunk, chunk, *x.shape[1:]), own)
    # Needed for shapes and in the loop: jit traces it once, and inline leaves no trace of the jit.
    several = jax.jit(several, inline=True)
    first = tree.map(lambda x: x[0], split)
    # Booleans are counted, small integers widened and low precisions added up in float32, as jnp.sum does.
    zero = lambda x: jnp.zeros(x.shape, jax.eval_shape(jnp.sum, x).dtype)
    zeros = tree.map(zero, jax.eval_shape(several, shared, first)[0])
    wide = lambda x: tree.at_least_float32(x) if jnp.issubdtype(x.dtype, jnp.floating) else x

    def step(total, part):
        sums, rows = several(shared, part)
        return tree.add(total, sums), rows

    sums, rows = lax.scan(step, tree.map(wide, zeros), split)
    sums = tree.like(zeros, sums)
    if chunk > 1:
        rows = tree.map(lambda x: x.reshape(size, *x.shape[2:]), rows)
    return sums, rows
