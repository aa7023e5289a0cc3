"""Where the chunks of a FedJAX cohort are trained: on one device, or a chunk on every device of a mesh.

OneDevice and EveryDevice have the same functions. On a mesh one program runs on all devices without communication. Its
arrays are made of the devices' own ones without a copy, and come apart again: where a device has a leaf [a, ...], the
program's array is [devices * a, ...].
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec

from fedwin import tree
from fedwin.engine import placement
from fedwin.engine.placement import AXIS


class OneDevice:
    """Chunks that one device trains, one after the other."""

    number = 1

    def everywhere(self, values):
        """Returns values where the programs read them."""
        return values

    def joined(self, rows: list[Any]) -> list[Any]:
        """Returns the rows of a chunk per device as arguments of the program."""
        return rows

    def parted(self, rows: list[Any], shapes) -> list[Any]:
        """Returns the rows that the program has returned."""
        return rows

    def reports(self, reports):
        """Returns the reported numbers of a cohort on the host."""
        return jax.device_get(reports)

    def zeros(self, shapes):
        """Returns a compiled function that makes running sums of these shapes, every leaf in its own buffer."""
        return jax.jit(lambda: tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes))

    def gathered(self, sums) -> list[Any]:
        """Returns the running sums of every device, all on the first one."""
        return [sums]

    def added(self, gathered: list[Any]):
        """Returns the sum over the devices of what `gathered` returns; traced."""
        return gathered[0]

    def program(self, train, shapes):
        """Returns the program (sums, rows, *shared) -> (sums, rows).

        Args:
          train: (sums, rows, device, *shared) -> (sums, rows) for one device.
          shapes: of a row.
        """
        return lambda sums, rows, *shared: train(sums, rows, 0, *shared)


class EveryDevice:
    """Chunks that the devices of a mesh train at the same time.

    Args:
      mesh: the devices, all of this process.
    """

    def __init__(self, mesh):
        self.mesh, self.number = mesh, mesh.size
        self.by_device = NamedSharding(mesh, PartitionSpec(AXIS))

    def everywhere(self, values):
        """Returns values with a copy on every device."""
        return placement.place(values, self.mesh)

    def joined(self, rows: list[Any]) -> list[Any]:
        """Returns the rows of a chunk per device as arguments of the program; one on another device is copied.

        Args:
          rows: one per device, and again one per device.
        """
        return [self._of_each(rows[first : first + self.number]) for first in range(0, len(rows), self.number)]

    def _of_each(self, rows: list[Any]):
        placed = [jax.device_put(row, device) for row, device in zip(rows, self.mesh.devices.flat, strict=True)]

        def leaf_of_each(*leaves):
            leaves = [leaf if np.ndim(leaf) else leaf.reshape(1) for leaf in leaves]
            first, *rest = leaves[0].shape
            shape = (self.number * first, *rest)
            return jax.make_array_from_single_device_arrays(shape, self.by_device, leaves)

        return jax.tree.map(leaf_of_each, *placed)

    def reports(self, reports):
        """Returns the reported numbers of a cohort on the host; zero on devices that did not train the client."""
        return jax.tree.map(lambda leaf: leaf.sum(0), jax.device_get(reports))

    def parted(self, rows: list[Any], shapes) -> list[Any]:
        """Returns the rows that the program has returned, in the order of `joined`; each stays on its device.

        Args:
          rows: trees of the mesh.
          shapes: of a row.
        """
        return [row for joined in rows for row in self._parted(joined, shapes)]

    def _parted(self, joined, shapes) -> list[Any]:
        leaves, treedef = jax.tree.flatten(joined)
        by_leaf = [self._shards(leaf) for leaf in leaves]
        for shards, shape in zip(by_leaf, jax.tree.leaves(shapes), strict=True):
            shards[:] = shards if shape.shape else [shard.reshape(()) for shard in shards]
        return [jax.tree.unflatten(treedef, [shards[n] for shards in by_leaf]) for n in range(self.number)]

    def _shards(self, leaf) -> list[Any]:
        found = {shard.device: shard.data for shard in leaf.addressable_shards}
        return [found[device] for device in self.mesh.devices.flat]

    def zeros(self, shapes):
        """Returns a compiled function that makes running sums of these shapes on every device."""
        zero = lambda x: jnp.zeros((self.number, *x.shape), x.dtype)
        return jax.jit(lambda: tree.map(zero, shapes), out_shardings=self.by_device)

    def gathered(self, sums) -> list[Any]:
        """Returns the running sums of every device, [1, ...], all on the first one."""
        leaves, treedef = jax.tree.flatten(sums)
        shards = jax.device_put([self._shards(leaf) for leaf in leaves], self.mesh.devices.flat[0])
        return [jax.tree.unflatten(treedef, [of_leaf[n] for of_leaf in shards]) for n in range(self.number)]

    def added(self, gathered: list[Any]):
        """Returns the sum over the devices of what `gathered` returns; traced."""
        return tree.map(lambda leaf: leaf[0], functools.reduce(tree.add, gathered))

    def program(self, train, shapes):
        """Returns the program (sums, rows, *shared) -> (sums, rows), whose sums are [devices, ...].

        Args:
          train: (sums, rows, device, *shared) -> (sums, rows) for one device.
          shapes: of a row.
        """

        def on_device(sums, rows, *shared):
            sums = tree.map(lambda leaf: leaf[0], sums)
            rows = [jax.tree.map(lambda leaf, shape: leaf.reshape(shape.shape), row, shapes) for row in rows]
            sums, rows = train(sums, rows, lax.axis_index(AXIS), *shared)
            return tree.map(lambda leaf: leaf[None], sums), jax.tree.map(jnp.atleast_1d, rows)

        whole, by_device = PartitionSpec(), PartitionSpec(AXIS)

        def on_mesh(sums, rows, *shared):
            specs = (by_device, by_device, *(whole for _ in shared))
            return jax.shard_map(
                on_device, mesh=self.mesh, in_specs=specs, out_specs=(by_device, by_device), check_vma=False
            )(sums, rows, *shared)

        return on_mesh
