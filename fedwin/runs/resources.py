"""Memory and disk requirements of a run, the resources of this machine, and where tables and windows are stored."""

import dataclasses
import math
import os
import pathlib
import shutil
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax

from fedwin import tree
from fedwin.core import Variables
from fedwin.data.federation import Federation
from fedwin.engine import evaluate
from fedwin.engine.communication import stacked_bytes
from fedwin.engine.evaluate import test_bytes
from fedwin.engine.rounds import read_out
from fedwin.engine.strategy import Strategy
from fedwin.errors import UserError
from fedwin.residence.blockwise import BLOCK_BYTES, nbytes
from fedwin.residence.examples import example_memory, should_stream
from fedwin.residence.rings import max_earlier, windows_of
from fedwin.residence.rows import HOST_SHARE, HOST_TABLE_BYTES, row_shapes, table_kind
from fedwin.runs.checkpoint import is_large
from fedwin.runs.config import Config
from fedwin.runs.prepare import PreparedRun
from fedwin.runs.seed_groups import group_size
from fedwin.window import PartialRing

# Free bytes to assume on a disk without a limit.
UNLIMITED_BYTES = 1 << 62


class Memory(NamedTuple):
    """Available bytes; None if unknown.

    Attributes:
      host: main memory.
      device: memory of one accelerator; None if the devices are CPUs, which use main memory.
    """

    host: int | None
    device: int | None = None


def available() -> Memory:
    """Returns the memory that is available now: main memory, and that of the first device if it is an accelerator."""
    limits = [limit for limit in (_system_memory(), _cgroup_memory()) if limit is not None]
    stats = None if jax.default_backend() == "cpu" else jax.local_devices()[0].memory_stats()
    return Memory(min(limits, default=None), (stats or {}).get("bytes_limit"))


def free_disk(directory: str | os.PathLike) -> int:
    """Returns the free bytes of the disk of a directory, which need not exist; UNLIMITED_BYTES if it has no limit."""
    path = pathlib.Path(directory).absolute()
    usage = shutil.disk_usage(next(folder for folder in (path, *path.parents) if os.path.exists(folder)))
    # A tmpfs without a limit reports no blocks at all.
    return usage.free if usage.total else UNLIMITED_BYTES


def _system_memory() -> int | None:
    try:
        for line in pathlib.Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:  # the total, if the available part is unknown
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def total_memory() -> int | None:
    """Returns the total main memory of this process in bytes, which does not change during a run; None if unknown."""
    limits = []
    try:
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
        limits.append(int((pathlib.Path("/sys/fs/cgroup") / "memory.max").read_text()))
    except (AttributeError, ValueError, OSError):
        pass
    return min(limits, default=None)


def _cgroup_memory(root: str = "/sys/fs/cgroup") -> int | None:
    """Returns the bytes that a container (cgroup) may still allocate; its cached file pages count as available."""
    folder = pathlib.Path(root)
    try:
        limit = (folder / "memory.max").read_text().strip()
        used = int((folder / "memory.current").read_text())
        stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        return None if limit == "max" else max(int(limit) - used + int(stat.get("inactive_file", 0)), 0)
    except (OSError, ValueError):
        return None


GIB = 1 << 30
# Copies of the parameters of a client in training: its model, the gradient, the step.
COPIES_IN_TRAINING = 3
# Copies of a small array in main memory while it is saved: the copy, orbax's buffer, the compressed data.
COPIES_IN_SAVING = 3
# Copies of stacked messages: the messages, the steps as vectors, and those in order.
COPIES_OF_MESSAGES = 3
# Bytes per round and client of a dispatch: id, address and slot on the device, and the cohort block on the host.
COHORT_BYTES = 24
# Bytes per client of the index of rows in a file: record number and checksum.
INDEX_BYTES = 12
DISK_REMEDIES = {
    "client table": "lower --num_rounds or --clients_per_round",
    "windows": "shorten the windows",
}
TABLE_REMEDIES = {
    "device": "set --table=host",
    "host": "set --table=file",
    "file": "lower --rounds_per_dispatch or --clients_per_round, or choose a smaller --model",
}


@dataclasses.dataclass(frozen=True)
class Estimate:
    """Estimated memory of a run in bytes, without activations and buffers of the compiler.

    Attributes:
      device: part -> bytes on one device.
      host: part -> bytes in main memory.
      devices: number of devices.
      remedies: part -> advice for making it smaller.
      disk: part -> bytes of files other than checkpoints.
    """

    device: dict[str, int]
    host: dict[str, int]
    devices: int
    remedies: dict[str, str]
    disk: dict[str, int] = dataclasses.field(default_factory=dict)

    @property
    def parts(self) -> dict[str, int]:
        """Part -> bytes in main memory and on all devices."""
        names = dict.fromkeys([*self.device, *self.host])
        return {name: self.device.get(name, 0) * self.devices + self.host.get(name, 0) for name in names}

    def __str__(self) -> str:
        listed = lambda parts: ", ".join(
            f"{name} {size / 1e6:.1f} MB" for name, size in parts.items() if size >= 50_000
        )
        disk = listed(self.disk)
        return f"memory: {listed(self.parts)}" + (f"; disk: {disk}" if disk else "")

    def with_activations(self, temporaries: int) -> "Estimate":
        """Returns the estimate with a part for activations and other buffers of the compiler.

        Args:
          temporaries: bytes of a compiled dispatch on one device, including models and batches in training.
        """
        estimated = self.device["clients in training"] + self.device["local batches"]
        return dataclasses.replace(self, device=self.device | {"activations": max(temporaries - estimated, 0)})

    def fits(self, memory: Memory) -> bool:
        """Returns whether the run fits into memory."""
        try:
            self.check(memory)
        except UserError:
            return False
        return True

    def check(self, memory: Memory) -> None:
        """Raises UserError, naming the largest part and a remedy, unless the run fits into memory."""
        if memory.device is None:
            memories = [("memory", self.parts, memory.host)]
        else:
            memories = [("device memory", self.device, memory.device), ("memory", self.host, memory.host)]
        for name, parts, available in memories:
            needed = sum(parts.values())
            if available is not None and needed > available:
                largest = max((part for part in parts if part in self.remedies), key=lambda part: parts[part])
                raise UserError(
                    f"{largest}: {_gib(parts[largest])} of the {_gib(needed)} of {name} that this run needs, and "
                    f"{_gib(available)} are available; {self.remedies[largest]}."
                )

    def check_disk(self, free: int) -> None:
        """Checks that files other than checkpoints fit on the disk.

        Args:
          free: free bytes on the disk.

        Raises:
          UserError: they do not; names the largest part and a remedy.
        """
        needed = sum(self.disk.values())
        if needed > free:
            largest = max(self.disk, key=lambda part: self.disk[part])
            raise UserError(
                f"{largest}: {_gib(self.disk[largest])} of the {_gib(needed)} in files that this run needs, and "
                f"{_gib(free)} are free on the disk; {DISK_REMEDIES[largest]}, or choose another --out_dir."
            )


def _gib(size: int) -> str:
    return f"{size / GIB:,.1f} GiB"


def participants(prepared: PreparedRun) -> int:
    """Returns an upper bound on the number of different clients that take part in a run."""
    return min(prepared.setting.num_clients, prepared.config.num_rounds * prepared.setting.sampling.largest)


def table_slots(prepared: PreparedRun, strategy: Strategy, rounds: int) -> tuple[int, str]:
    """Returns the number of rows of the table in the state, and where all rows are: 'device', 'host' or 'file'.

    Args:
      prepared: the prepared run.
      strategy: pads cohorts.
      rounds: maximum number of rounds of a dispatch.
    """
    clients, config, sampler = prepared.setting.num_clients, prepared.config, prepared.setting.sampling
    params = jax.eval_shape(prepared.model.init, jax.random.key(0)).params
    kind = table_kind(prepared.algorithm, params, clients, config.table, (participants(prepared), total_memory()))
    if kind == "device":
        return clients, kind
    return min(rounds * strategy.multiple(sampler.largest), clients), kind


def _device_bytes(shapes: Any, placed: Any) -> int:
    """Returns the bytes of a tree on one device, given the shardings of its leaves (None: replicated)."""
    if placed is None:
        return tree.nbytes(shapes)
    leaves = zip(jax.tree.leaves(shapes), jax.tree.leaves(placed), strict=True)
    return sum(math.prod(where.shard_shape(leaf.shape)) * leaf.dtype.itemsize for leaf, where in leaves)


def _in_training(
    prepared: PreparedRun, federation: Federation, strategy: Strategy, model: Variables
) -> tuple[int, int]:
    """Returns the bytes on one device of (models, batches) of the clients that train at the same time."""
    solver, train = prepared.solver, prepared.dataset.train
    per_device = -(-prepared.setting.sampling.largest // strategy.num_devices)
    concurrent = min(strategy.chunk or per_device, per_device)
    optimizer = jax.eval_shape(solver.optimizer.init, model.params)
    copies = COPIES_IN_TRAINING * tree.nbytes(model.params) + tree.nbytes((optimizer, model.stats))
    # Integers become float32 when a batch is prepared.
    example = sum(4 * math.prod(train[name].shape[1:]) for name in ("x", "y")) + 4
    order = 4 * solver.places(federation.buckets[-1])
    return concurrent * copies, concurrent * (order + solver.batch_size * example)


def _messages_bytes(prepared: PreparedRun, federation: Federation, model: Variables, width: int) -> int:
    """Returns the bytes on one device of the messages of a cohort, if they are stacked."""
    store, n_max = federation.shapes(), federation.buckets[-1]
    return COPIES_OF_MESSAGES * width * stacked_bytes(prepared.algorithm, model.params, store, n_max, model.stats)


def _checkpoint_bytes(run: Any) -> int:
    """Returns the bytes in main memory for writing a checkpoint: copies of small arrays, one block of large ones."""
    leaves = jax.tree.leaves(run._replace(key=()))
    small = sum(nbytes(leaf) for leaf in leaves if not is_large(leaf))
    blocks = [max(BLOCK_BYTES, nbytes(leaf) // max(leaf.shape[0], 1)) for leaf in leaves if is_large(leaf)]
    return COPIES_IN_SAVING * small + max(blocks, default=0)


def estimate(prepared: PreparedRun, strategy: Strategy, seed: int | None = None) -> Estimate:
    """Estimates the memory for training one seed, or a group of vmapped seeds.

    Args:
      prepared: the prepared run.
      strategy: how cohorts are executed.
      seed: the seed whose federation is counted; the first one by default.
    """
    config, copies = prepared.config, strategy.num_devices
    seed = config.seeds[0] if seed is None else seed
    federation, per_round = prepared.federations[seed], prepared.setting.sampling.largest
    examples, rounds = example_memory(federation, config.examples, strategy, per_round, config.rounds_per_dispatch)
    windows = window_plan(prepared, rounds)
    slots, kind = table_slots(prepared, strategy, min(rounds, windows.rounds or rounds))
    run = jax.eval_shape(lambda: prepared.start(seed, slots, window_rounds=windows.rounds))
    placed = strategy.placement(run)
    state_bytes = {
        name: _device_bytes(getattr(run, name), placed and getattr(placed, name))
        for name in ("table", "state", "observers")
    }
    model = jax.eval_shape(prepared.model.init, jax.random.key(0))
    one_row = row_shapes(prepared.algorithm, model.params)
    row = tree.nbytes(one_row)
    training, batches = _in_training(prepared, federation, strategy, model)
    width = strategy.multiple(per_round)
    device = {
        "examples": examples,
        "test set": test_bytes(prepared.dataset, config.eval_examples, config.eval_batch_size, copies) // copies,
        "validation set": evaluate.validation_bytes(prepared.federations) // copies if config.eval_val else 0,
        "model": tree.nbytes((run.params, run.stats)),
        "clients in training": training,
        "local batches": batches,
        "client table": state_bytes["table"] + 2 * row * width,
        "messages": _messages_bytes(prepared, federation, model, width),
        "algorithm": state_bytes["state"],
        "observers": state_bytes["observers"],
        "cohorts": COHORT_BYTES * rounds * width,
        "client evaluation": _client_evaluation_bytes(prepared, seed, run),
    }
    host, saved = {"client table": 0, "windows": windows.host_bytes}, run
    disk = {"client table": row * participants(prepared) if kind == "file" else 0, "windows": windows.disk_bytes}
    if kind == "host":
        host["client table"] = row * participants(prepared)
        stored = lambda leaf: jax.ShapeDtypeStruct((participants(prepared), *leaf.shape), leaf.dtype)
        saved = run._replace(table=jax.tree.map(stored, one_row))
    elif kind == "file":
        # Rows of the dispatch that is written back, and of the prefetched one.
        host["client table"] = 2 * slots * row + INDEX_BYTES * prepared.setting.num_clients
        saved = run._replace(table=())
    host["checkpoint"] = _checkpoint_bytes(saved)
    index = tree.nbytes(federation.shapes()._replace(examples=()))
    device = vmapped_bytes(config, device, index)
    advice = _remedies(prepared, strategy, kind, should_stream(federation, config.examples)) | window_remedies(
        prepared, windows
    )
    return Estimate(device, host, copies, advice, disk)


def _client_evaluation_bytes(prepared: PreparedRun, seed: int, run: Any) -> int:
    """Returns the bytes of the per-client evaluation on one device: examples, their index and the read-outs.

    The clients of a block take no more than those that train at the same time.
    """
    if not prepared.evaluated:
        return 0
    size = 0
    for clients in prepared.evaluated[seed].values():
        store = clients.federation.shapes()
        # Held-out examples are among the training examples.
        held_out = clients.federation.dataset is prepared.dataset
        streamed = should_stream(clients.federation, prepared.config.examples)
        size += tree.nbytes(store._replace(examples=()) if held_out or streamed else store)
    models = jax.eval_shape(lambda run: read_out(prepared.algorithm, prepared.observers, run), run)
    return size + 2 * tree.nbytes(models)


def _remedies(prepared: PreparedRun, strategy: Strategy, kind: str, streamed: bool) -> dict[str, str]:
    config, concurrent = prepared.config, strategy.chunk != 1 and prepared.setting.sampling.largest > 1
    chunked = "--strategy=chunked:k=1, or "
    return {
        "examples": "choose a smaller data set" if streamed else "set --examples=stream",
        "test set": "evaluate on fewer with --eval_examples",
        "validation set": "lower --val_fraction",
        "model": "choose a smaller --model",
        "clients in training": (f"set {chunked}" if concurrent else "choose ") + "a smaller --model",
        "local batches": (f"set {chunked}" if concurrent else "set ") + "a smaller --batch_size or --local_epochs",
        "activations": (f"set {chunked}" if concurrent else "set ") + "a smaller --batch_size",
        "client table": TABLE_REMEDIES[kind],
        "client evaluation": "omit --eval_clients",
        "messages": "lower --clients_per_round, set --aggregate=mean, or choose a smaller --model",
        "cohorts": f"lower --rounds_per_dispatch={config.rounds_per_dispatch}",
    }


# Maximum bytes on the device for the vectors of a dispatch, if windows are offloaded.
DISPATCH_BYTES = 192 << 20
OFFLOADED_REMEDIES = {"host": "set --window=file, or shorten the windows", "file": "choose a smaller --model"}


class WindowPlan(NamedTuple):
    """Where windows are stored.

    Attributes:
      kind: 'device', 'host' or 'file'.
      rounds: maximum number of rounds of a dispatch if windows are offloaded; None on the device.
      ring_bytes: bytes of all ring buffers.
      partial_bytes: bytes of the vectors of a dispatch on the device if windows are offloaded.
    """

    kind: str
    rounds: int | None
    ring_bytes: int
    partial_bytes: int

    @property
    def host_bytes(self) -> int:
        """Bytes in main memory, in addition to those on the device."""
        # Vectors that are prefetched, and written back from devices with their own memory.
        in_transfer = self.partial_bytes
        return {"device": 0, "host": self.ring_bytes + in_transfer, "file": in_transfer}[self.kind]

    @property
    def disk_bytes(self) -> int:
        """Bytes on disk, without the vectors that only older checkpoints need."""
        return self.ring_bytes if self.kind == "file" else 0


def _partial_bytes(partial_rings: list[PartialRing], rounds: int) -> int:
    # There are two buffers for new vectors: while a dispatch fills one, the other is written back.
    return sum(
        (2 * rounds + max_earlier(rounds, ring.ages)) * ring.shape[1] * ring.dtype.itemsize for ring in partial_rings
    )


def window_plan(prepared: PreparedRun, rounds: int) -> WindowPlan:
    """Decides where windows are stored; computes nothing.

    Args:
      prepared: the prepared run.
      rounds: maximum number of rounds of a dispatch with windows on the device.
    """
    run: Any = jax.eval_shape(lambda: prepared.start(prepared.config.seeds[0], 1, window_rounds=1))
    partial_rings = [node.ring for node in windows_of(run).values()]
    size = sum(ring.shape[0] * ring.shape[1] * ring.dtype.itemsize for ring in partial_rings)
    kind = prepared.config.window
    if kind == "auto":
        memory = total_memory()
        offloaded = "file" if memory is not None and size > HOST_SHARE * memory else "host"
        kind = "device" if size <= HOST_TABLE_BYTES else offloaded
        if kind == "file" and size > free_disk(prepared.config.out_dir or "."):
            kind = "device"  # whose memory check names the windows to shorten
    if not partial_rings or kind == "device":
        return WindowPlan("device", None, size, 0)
    most = next((n for n in range(rounds, 1, -1) if _partial_bytes(partial_rings, n) <= DISPATCH_BYTES), 1)
    return WindowPlan(kind, most, size, _partial_bytes(partial_rings, most))


def window_remedies(prepared: PreparedRun, plan: WindowPlan) -> dict[str, str]:
    """Returns part of an estimate -> advice for making windows smaller."""
    config = prepared.config
    flags = f"--algorithm={config.algorithm}" + "".join(f" or --wrap={text}" for text in config.wrap)
    # CPU devices use main memory.
    residence = "file" if jax.default_backend() == "cpu" else "host"
    offload = f"set --window={residence}, or " if plan.kind == "device" and plan.ring_bytes else ""
    advice = {"algorithm": f"{offload}shorten the windows of {flags}"}
    advice["observers"] = f"{offload}shorten the windows of --observe={','.join(config.observe)}"
    return advice | ({"windows": OFFLOADED_REMEDIES[plan.kind]} if plan.kind in OFFLOADED_REMEDIES else {})


# Parts of an estimate that exist once per vmapped seed, and parts with one more: a state that is copied in or out.
PER_SEED = ("validation set", "clients in training", "local batches", "messages", "cohorts")


PER_SEED_AND_TRANSFERRED = ("model", "client table", "algorithm", "observers")


def vmapped_bytes(config: Config, device: Mapping[str, int], index: int) -> dict[str, int]:
    """Returns part -> bytes of a group of vmapped seeds on one device.

    Args:
      config: the flags.
      device: part -> bytes of one seed.
      index: bytes of the index that assigns examples to clients.
    """
    if (num_vmapped := group_size(config)) == 1:
        return dict(device)
    times = dict.fromkeys(PER_SEED, num_vmapped) | dict.fromkeys(PER_SEED_AND_TRANSFERRED, num_vmapped + 1)
    group = {part: size * times.get(part, 1) for part, size in device.items()}
    return group | {"examples": group["examples"] + (num_vmapped - 1) * index}
