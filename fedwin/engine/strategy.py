"""How a cohort is executed: vmapped, chunked, or sharded over devices; the default table; what each costs."""

from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from fedwin.errors import UserError
from fedwin.registry import Registry

AXIS = "clients"
# Above these sizes, leaves of client tables and vectors of windows are split over the devices; below, a copy on each
# device saves exchanges in every round.
LARGE_TABLE_BYTES = 1 << 26
LONG_VECTOR = 1 << 18
STRATEGIES = Registry("strategy")


class Strategy(NamedTuple):
    """chunk: clients per vmap, None = all of a device's; mesh: devices to spread the cohort over, None = one."""

    chunk: int | None = 1
    mesh: Any = None

    @property
    def num_devices(self) -> int:
        return 1 if self.mesh is None else self.mesh.size

    def multiple(self, clients: int) -> int:
        """The number that a cohort of `clients` is padded to."""
        per_device = -(-clients // self.num_devices)
        chunk = min(self.chunk or per_device, per_device)
        return -(-per_device // chunk) * chunk * self.num_devices

    def __str__(self) -> str:
        inner = "vmapped" if self.chunk is None else f"chunked:k={self.chunk}"
        if self.mesh is None:
            return inner
        chunk = 0 if self.chunk is None else self.chunk
        return f"sharded:devices={self.num_devices},k={chunk}"

    def placement(self, run):
        """Where a RunState's leaves live: large rings and tables split over the mesh, the rest on every device; None without mesh."""
        if self.mesh is None:
            return None

        def table(leaf):
            even = leaf.shape[0] % self.mesh.size == 0
            large = leaf.size * leaf.dtype.itemsize > LARGE_TABLE_BYTES
            return NamedSharding(self.mesh, PartitionSpec(AXIS) if even and large else PartitionSpec())

        def wide(leaf):
            # Vectors of a window ([W, P], [n, P], [P]) are padded to a multiple of the mesh (window.ALIGNMENT). P alone
            # decides, so that a ring and its sums lie alike.
            from fedwin.window import ALIGNMENT

            size = leaf.shape[-1] if leaf.ndim else 0
            if size and size >= LONG_VECTOR and size % ALIGNMENT == 0 and size % self.mesh.size == 0:
                return NamedSharding(self.mesh, PartitionSpec(*(None,) * (leaf.ndim - 1), AXIS))
            return NamedSharding(self.mesh, PartitionSpec())

        everywhere = lambda leaf: NamedSharding(self.mesh, PartitionSpec())
        return run._replace(
            params=jax.tree.map(everywhere, run.params),
            stats=jax.tree.map(everywhere, run.stats),
            state=jax.tree.map(wide, run.state),
            table=jax.tree.map(table, run.table),
            observers=jax.tree.map(wide, run.observers),
            round=everywhere(run.round),
            key=everywhere(run.key),
        )

    def constrain(self, run, placement):
        return run if placement is None else jax.lax.with_sharding_constraint(run, placement)

    def everywhere(self, values):
        """Holds traced values whole on every device of the mesh."""
        if self.mesh is None:
            return values
        return jax.lax.with_sharding_constraint(values, NamedSharding(self.mesh, PartitionSpec()))

    def place(self, values, placement=None):
        """Puts values on the strategy's devices: as `placement` says, else replicated."""
        if self.mesh is None:
            return jax.device_put(values)
        return jax.device_put(values, placement if placement is not None else NamedSharding(self.mesh, PartitionSpec()))


def make_mesh(devices: int | None = None):
    """Returns a mesh over the first `devices` devices (all by default); raises UserError if there are fewer."""
    known = jax.devices()
    devices = devices or len(known)
    if devices < 0:
        raise UserError(f"strategy: devices={devices} must be at least 1, or 0 for all.")
    if devices > len(known):
        raise UserError(
            f"strategy: devices={devices}, but jax sees {len(known)}; lower it in a new run, "
            f"or on a CPU set the environment variable JAX_NUM_CPU_DEVICES={devices}."
        )
    return jax.sharding.Mesh(np.array(known[:devices]), (AXIS,), axis_types=(AxisType.Auto,))


@STRATEGIES.register("vmapped")
def vmapped() -> Strategy:
    """All clients of the cohort in one vmap."""
    return Strategy(None)


@STRATEGIES.register("chunked")
def chunked(*, k: int = 1) -> Strategy:
    """A loop over chunks of k clients, each chunk one vmap; k=1 is a plain loop over clients."""
    if not isinstance(k, int) or k < 1:
        raise UserError(f"strategy chunked: k={k} must be an integer >= 1.")
    return Strategy(k)


@STRATEGIES.register("sharded")
def sharded(*, devices: int = 0, k: int = 1) -> Strategy:
    """The cohort spread over devices (0 = all), each working through chunks of k clients (0 = one vmap)."""
    if not isinstance(k, int) or k < 0:
        raise UserError(f"strategy sharded: k={k} must be an integer >= 0 (0 = one vmap per device).")
    mesh = make_mesh(devices or None)
    return Strategy(k or None, mesh if mesh.size > 1 else None)


# pmap is jit + shard_map over a mesh axis today; the word stays for those who look for it.
STRATEGIES.register("pmap", sharded)


def default_name(backend: str, num_devices: int) -> str:
    """The fixed table behind --strategy=default, found by measurement (BUILD_NOTES.md).

    CPU: a loop over clients on each core's own device keeps one model in cache; GPU and TPU: one vmap per device.
    """
    if backend == "cpu":
        return "chunked:k=1" if num_devices == 1 else f"sharded:devices={num_devices},k=1"
    return "vmapped" if num_devices == 1 else f"sharded:devices={num_devices},k=0"
