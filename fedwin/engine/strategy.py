"""Execution strategies of a cohort: vmapped, chunked, or sharded over devices; the default per backend."""

import contextlib
from typing import NamedTuple

import jax
import numpy as np
from jax.sharding import AxisType

from fedwin import jax_config, multi_process
from fedwin.engine import placement
from fedwin.engine.placement import AXIS
from fedwin.errors import UserError
from fedwin.registry import Registry, parse
from fedwin.registry.ranges import NonNegativeInt, PositiveInt, one_of
from fedwin.residence import blockwise
from fedwin.residence.blockwise import Lazy
from fedwin.tree import PyTree

STRATEGIES = Registry("strategy")
# Values of --strategy that stand for a choice among the strategies.
CHOICES = ("default", "auto")


class Strategy(NamedTuple):
    """How many clients share a vmap, and which devices share the cohort.

    Attributes:
      chunk: clients per vmap; None = all of a device's.
      mesh: devices to spread the cohort over; None = one device.
    """

    chunk: int | None = 1
    mesh: jax.sharding.Mesh | None = None

    @property
    def num_devices(self) -> int:
        """Devices that share a cohort."""
        return 1 if self.mesh is None else self.mesh.size

    def multiple(self, clients: int) -> int:
        """Returns the number that a cohort of `clients` is padded to."""
        per_device = -(-clients // self.num_devices)
        chunk = min(self.chunk or per_device, per_device)
        return -(-per_device // chunk) * chunk * self.num_devices

    def __str__(self) -> str:
        inner = "vmapped" if self.chunk is None else f"chunked:k={self.chunk}"
        return inner if self.mesh is None else f"sharded:devices={self.num_devices},k={self.chunk or 0}"

    def placement(self, run):
        """Returns a RunState of shardings for one of arrays or shapes, or None without a mesh."""
        if self.mesh is None:
            return None
        split = lambda state: jax.tree.map(lambda leaf: placement.window_placement(leaf, self.mesh), state)
        table = placement.table_placement(run.table, self.mesh)
        whole = jax.tree.map(lambda leaf: placement.replicated(self.mesh), run)
        return whole._replace(state=split(run.state), table=table, observers=split(run.observers))

    def everywhere(self, values):
        """Constrains traced values to be whole on every device of the mesh."""
        if self.mesh is None:
            return values
        return jax.lax.with_sharding_constraint(values, placement.replicated(self.mesh))

    def mesh_context(self):
        """Returns a context for tracing in which `jax.sharding.get_abstract_mesh` is this mesh; `window` reads it."""
        if self.mesh is None:
            return contextlib.nullcontext()
        return jax.sharding.use_abstract_mesh(self.mesh.abstract_mesh)

    def place(self, values, shardings=None):
        """Puts a tree of arrays on the devices, lazy ones block by block: by `shardings`, else a copy on each."""
        if self.mesh is None:
            return jax.device_put(blockwise.placed(values))
        shardings = placement.replicated(self.mesh) if shardings is None else shardings
        if multi_process.count() == 1 and any(isinstance(leaf, Lazy) for leaf in jax.tree.leaves(values)):
            values = jax.tree.map(
                lambda leaf, to: blockwise.place(leaf, to) if isinstance(leaf, Lazy) else leaf, values, shardings
            )
        return multi_process.put_global(values, shardings)

    @property
    def own_positions(self) -> list[int]:
        """Positions in the mesh of this process's devices."""
        if self.mesh is None:
            return [0]
        return [n for n, device in enumerate(self.mesh.devices.flat) if device.process_index == jax.process_index()]

    def place_split(self, parts: dict[int, PyTree]):
        """Puts one tree on each device of this process: position in the mesh -> tree; leaves become [D, ...]."""
        assert self.mesh is not None
        devices = list(self.mesh.devices.flat)
        sharding = jax.sharding.NamedSharding(self.mesh, jax.sharding.PartitionSpec(AXIS))

        def stacked(*leaves):
            pieces = [jax.device_put(np.asarray(leaf)[None], devices[n]) for n, leaf in zip(parts, leaves, strict=True)]
            return jax.make_array_from_single_device_arrays((len(devices), *pieces[0].shape[1:]), sharding, pieces)

        return jax.tree.map(stacked, *parts.values())

    def jit(self, function):
        """Returns a jitted function whose results are whole on every device, so that every process can read them."""

        def traced(*args):
            with self.mesh_context():
                return function(*args)

        whole = None if self.mesh is None else placement.replicated(self.mesh)
        return jax.jit(traced, out_shardings=whole, compiler_options=jax_config.compiler_options())


def make_mesh(devices: int | None = None):
    """Returns a mesh over the first `devices` devices, by default over all.

    Raises:
      UserError: fewer devices than that.
    """
    available = jax.devices()
    devices = devices or len(available)
    if multi_process.count() > 1 and devices != len(available):
        raise UserError(
            f"strategy: devices={devices}, but the {multi_process.count()} processes have {len(available)} together; "
            f"several processes use all of them."
        )
    if devices > len(available):
        raise UserError(
            f"strategy: devices={devices}, but jax sees {len(available)}; lower it in a new run, "
            f"or on a CPU set the environment variable JAX_NUM_CPU_DEVICES={devices}."
        )
    return jax.sharding.Mesh(np.array(available[:devices]), (AXIS,), axis_types=(AxisType.Auto,))


@STRATEGIES.register("vmapped")
def vmapped() -> Strategy:
    """All clients of the cohort in one vmap."""
    return Strategy(None)


@STRATEGIES.register("chunked")
def chunked(*, k: PositiveInt = 1) -> Strategy:
    """A loop over chunks of k clients, each chunk one vmap; k=1 is a plain loop over clients."""
    return Strategy(k)


@STRATEGIES.register("sharded")
def sharded(*, devices: NonNegativeInt = 0, k: NonNegativeInt = 1) -> Strategy:
    """The cohort spread over devices (0 = all), each working through chunks of k clients (0 = one vmap)."""
    mesh = make_mesh(devices or None)
    return Strategy(k or None, mesh if mesh.size > 1 else None)


# pmap is jit + shard_map over a mesh axis today; kept as an alias.
STRATEGIES.register("pmap", sharded)


def default_name(num_devices: int) -> str:
    """Returns the strategy of --strategy=default, by measurements (BUILD_NOTES.md).

    CPU: a loop over clients on each core's own device keeps one model in cache; GPU and TPU: one vmap per device.
    """
    if jax.default_backend() == "cpu":
        return "chunked:k=1" if num_devices == 1 else f"sharded:devices={num_devices},k=1"
    return "vmapped" if num_devices == 1 else f"sharded:devices={num_devices},k=0"


def check_strategy(name: str) -> None:
    """Raises UserError unless `name` is default, auto or a strategy that this machine can run."""
    if name in CHOICES:
        return
    choice = parse(name)
    if choice.name in CHOICES:
        raise UserError(f"strategy={name}: '{choice.name}' has no parameters; write --strategy={choice.name}.")
    one_of("strategy", choice.name, (*CHOICES, *sorted(STRATEGIES)))
    STRATEGIES.build(choice)


def resolve_strategy(name: str, clients_per_round: int) -> Strategy:
    """Returns a strategy on this machine.

    Args:
      clients_per_round: cohort size, which limits the number of devices.

    Raises:
      UserError: several processes, and a strategy for one device.
    """
    if name == "default":
        # More devices than clients would be idle; but every process must take part.
        devices = jax.device_count()
        if multi_process.count() == 1:
            devices = min(devices, clients_per_round)
        name = default_name(devices)
    strategy = STRATEGIES.build(name)
    if multi_process.count() > 1 and strategy.mesh is None:
        raise UserError(f"strategy={name} uses one device; {multi_process.count()} processes need --strategy=sharded.")
    return strategy
