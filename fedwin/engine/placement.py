"""Shardings of a RunState on a mesh: large client tables and windows are split, all else is on every device."""

import jax
from jax.sharding import NamedSharding, PartitionSpec

from fedwin import multi_process
from fedwin.residence import blockwise
from fedwin.residence.blockwise import Lazy
from fedwin.tree import PyTree
from fedwin.window import ALIGNMENT

# The mesh axis that clients are spread over.
AXIS = "clients"

# Above these sizes, leaves of client tables and vectors of windows are split over the devices; below, a copy on each
# device avoids exchanges in every round.
LARGE_TABLE_BYTES = 1 << 26
LONG_VECTOR = 1 << 18


def replicated(mesh) -> NamedSharding:
    """Returns the sharding of arrays that every device holds as a whole."""
    return NamedSharding(mesh, PartitionSpec())


def _of_window(mesh, leaf) -> NamedSharding:
    # Vectors of a window ([W, P], [n, P], [P]) are padded to a multiple of the mesh (window.ALIGNMENT). P alone
    # decides, so that a ring and its sums are placed the same way.
    size = leaf.shape[-1] if leaf.ndim else 0
    if size and size >= LONG_VECTOR and size % ALIGNMENT == 0 and size % mesh.size == 0:
        return NamedSharding(mesh, PartitionSpec(*(None,) * (leaf.ndim - 1), AXIS))
    return replicated(mesh)


def table_placement(table, mesh) -> PyTree:
    """Returns shardings of a client table: large leaves are split over the mesh."""
    is_split = lambda leaf: leaf.shape[0] % mesh.size == 0 and leaf.size * leaf.dtype.itemsize > LARGE_TABLE_BYTES
    split = NamedSharding(mesh, PartitionSpec(AXIS))
    return jax.tree.map(lambda leaf: split if is_split(leaf) else replicated(mesh), table)


def place(values, mesh, shardings=None):
    """Puts a tree of arrays on devices, lazy arrays block by block; without shardings, a copy on each device."""
    if mesh is None:
        return jax.device_put(blockwise.placed(values))
    shardings = replicated(mesh) if shardings is None else shardings
    if multi_process.count() == 1 and any(isinstance(leaf, Lazy) for leaf in jax.tree.leaves(values)):
        values = jax.tree.map(
            lambda leaf, to: blockwise.place(leaf, to) if isinstance(leaf, Lazy) else leaf, values, shardings
        )
    return multi_process.put_global(values, shardings)


def placement(run, mesh) -> PyTree:
    """Returns a RunState of shardings for one of arrays or shapes, or None without a mesh."""
    if mesh is None:
        return None
    everywhere = lambda leaf: replicated(mesh)
    window = lambda leaf: _of_window(mesh, leaf)
    return run._replace(
        params=jax.tree.map(everywhere, run.params),
        stats=jax.tree.map(everywhere, run.stats),
        state=jax.tree.map(window, run.state),
        table=table_placement(run.table, mesh),
        observers=jax.tree.map(window, run.observers),
        round=everywhere(run.round),
        key=everywhere(run.key),
    )
