"""Shardings of a RunState on a mesh: large client tables and windows are split, all else is on every device."""

import jax
from jax.sharding import NamedSharding, PartitionSpec

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


def window_placement(leaf, mesh) -> NamedSharding:
    """Returns the sharding of a leaf of a server's or an observer's state: long vectors are split over the mesh."""
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
