"""What memory this machine has, and what room on the disk."""

import dataclasses
import math
import os
import pathlib
import shutil
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax

from fedwin import tree
from fedwin import window as rings
from fedwin.engine import evaluate
from fedwin.engine.evaluate import test_bytes
from fedwin.engine.strategy import Strategy
from fedwin.errors import UserError
from fedwin.residence.blockwise import BLOCK_BYTES, nbytes
from fedwin.residence.client_table import HOST_SHARE, HOST_TABLE_BYTES, row_shapes, table_kind
from fedwin.residence.examples import example_memory, should_stream
from fedwin.residence.offloaded_windows import windows_of
from fedwin.runs.checkpoint import is_large
from fedwin.runs.config import Config
from fedwin.runs.prepare import PreparedRun
from fedwin.runs.seed_groups import group_size

# What is free where nobody says how much there is.
MOST_BYTES = 1 << 62


class Memory(NamedTuple):
    """Bytes that are available; None where the system does not say.

    Attributes:
      host: main memory.
      device: memory of one accelerator; None also where devices are CPUs, which use main memory.
    """

    host: int | None
    device: int | None = None


def available() -> Memory:
    """Returns what this machine has now: of main memory, and of the first device if that has memory of its own."""
    limits = [limit for limit in (_system_memory(), _group_memory()) if limit is not None]
    stats = None if jax.default_backend() == "cpu" else jax.local_devices()[0].memory_stats()
    return Memory(min(limits, default=None), (stats or {}).get("bytes_limit"))


def free_disk(directory) -> int:
    """Returns the bytes that are free where a directory is, or would be made; a disk without a limit has MOST_BYTES."""
    where = pathlib.Path(directory).absolute()
    found = shutil.disk_usage(next(place for place in (where, *where.parents) if os.path.exists(place)))
    # A tmpfs without a limit says that it has no blocks at all.
    return found.free if found.total else MOST_BYTES


def _system_memory() -> int | None:
    try:
        for line in pathlib.Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:  # all there is, where nothing says what is free of it
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def total_memory() -> int | None:
    """Returns all the main memory that this process may ever have: the same whenever it is asked for."""
    limits = []
    try:
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
        limits.append(int((pathlib.Path("/sys/fs/cgroup") / "memory.max").read_text()))
    except (AttributeError, ValueError, OSError):
        pass
    return min(limits, default=None)


def _group_memory(root: str = "/sys/fs/cgroup") -> int | None:
    """What a container may still take; pages of files that it holds are given back on demand."""
    folder = pathlib.Path(root)
    try:
        limit = (folder / "memory.max").read_text().strip()
        used = int((folder / "memory.current").read_text())
        stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        return None if limit == "max" else max(int(limit) - used + int(stat.get("inactive_file", 0)), 0)
    except (OSError, ValueError):
        return None


GIB = 1 << 30
# Arrays of parameters that a client in training has at a time: its model, the gradient, the step made of them.
COPIES_IN_TRAINING = 3
# Times that a small array is in main memory while it is saved: copied, in orbax's buffer, compressed.
COPIES_IN_SAVING = 3
# Bytes per round and client of a dispatch: id, row and slot on the device; the block they are cut from on the host.
COHORT_BYTES = 24
# Bytes per client of the index of rows in a file: record and checksum.
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
    """Bytes of what a run holds at a time; activations and the compiler's own buffers are not counted.

    Attributes:
      device: part -> bytes on one device.
      host: part -> bytes in main memory.
      devices: how many devices there are.
      remedies: part -> what makes it smaller.
      disk: part -> bytes of files, checkpoints not among them.
    """

    device: dict[str, int]
    host: dict[str, int]
    devices: int
    remedies: dict[str, str]
    disk: dict[str, int] = dataclasses.field(default_factory=dict)

    @property
    def parts(self) -> dict[str, int]:
        """Part -> bytes on the host and on all devices together."""
        names = dict.fromkeys([*self.device, *self.host])
        return {name: self.device.get(name, 0) * self.devices + self.host.get(name, 0) for name in names}

    def __str__(self) -> str:
        told = lambda parts: ", ".join(f"{name} {size / 1e6:.1f} MB" for name, size in parts.items() if size >= 50_000)
        disk = told(self.disk)
        return f"memory: {told(self.parts)}" + (f"; disk: {disk}" if disk else "")

    def with_activations(self, temporaries: int) -> "Estimate":
        """Returns the estimate with a part for activations and what else the compiler makes room for.

        Args:
          temporaries: bytes of a compiled dispatch on one device; models and batches in training are among them.
        """
        known = self.device["clients in training"] + self.device["local batches"]
        return dataclasses.replace(self, device=self.device | {"activations": max(temporaries - known, 0)})

    def fits(self, memory: Memory) -> bool:
        """Whether the run has room."""
        try:
            self.check(memory)
        except UserError:
            return False
        return True

    def check(self, memory: Memory) -> None:
        """Raises UserError, naming the largest part and what makes it smaller, unless the run has room."""
        if memory.device is None:
            pools = [("memory", self.parts, memory.host)]
        else:
            pools = [("device memory", self.device, memory.device), ("memory", self.host, memory.host)]
        for name, parts, available in pools:
            needed = sum(parts.values())
            if available is not None and needed > available:
                largest = max((part for part in parts if part in self.remedies), key=lambda part: parts[part])
                raise UserError(
                    f"{largest}: {_gib(parts[largest])} of the {_gib(needed)} of {name} that this run needs, and "
                    f"{_gib(available)} are available; {self.remedies[largest]}."
                )

    def check_disk(self, free: int) -> None:
        """Raises UserError, naming the largest part and what makes it smaller, unless files of this size have room.

        Args:
          free: bytes that are free on the disk.
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
    """Returns the most clients that can take part in a run."""
    return min(prepared.setting.num_clients, prepared.config.num_rounds * prepared.config.clients_per_round)


def table_slots(prepared: PreparedRun, strategy: Strategy, rounds: int) -> tuple[int, str]:
    """Returns the rows of the client table in the state, and where all rows live: 'device', 'host' or 'file'.

    Args:
      prepared: the prepared run.
      strategy: pads cohorts.
      rounds: the most rounds that a dispatch holds.
    """
    clients, config = prepared.setting.num_clients, prepared.config
    params = jax.eval_shape(prepared.model.init, jax.random.key(0)).params
    kind = table_kind(prepared.algorithm, params, clients, config.table, (participants(prepared), total_memory()))
    if kind == "device":
        return clients, kind
    return min(rounds * strategy.multiple(config.clients_per_round), clients), kind


def _held(shapes, placed) -> int:
    """Bytes of a tree on one device, given where its leaves live (None: whole on each)."""
    if placed is None:
        return tree.nbytes(shapes)
    leaves = zip(jax.tree.leaves(shapes), jax.tree.leaves(placed), strict=True)
    return sum(math.prod(where.shard_shape(leaf.shape)) * leaf.dtype.itemsize for leaf, where in leaves)


def _in_training(prepared: PreparedRun, federation, strategy: Strategy, model: Any) -> tuple[int, int]:
    """Returns bytes on one device of (the models, the batches) of the clients that it trains at a time."""
    solver, train = prepared.solver, prepared.dataset.train
    per_device = -(-prepared.config.clients_per_round // strategy.num_devices)
    together = min(strategy.chunk or per_device, per_device)
    optimizer = jax.eval_shape(solver.optimizer.init, model.params)
    copies = COPIES_IN_TRAINING * tree.nbytes(model.params) + tree.nbytes((optimizer, model.stats))
    # Integers become float32 when a batch is prepared.
    example = sum(4 * math.prod(train[name].shape[1:]) for name in ("x", "y")) + 4
    order = 4 * solver.batches.places(federation.buckets[-1], solver.max_epochs or solver.epochs)
    return together * copies, together * (order + solver.batch_size * example)


def _saving(run) -> int:
    """Bytes that writing a checkpoint takes: small arrays are copied, large ones pass by in blocks."""
    leaves = jax.tree.leaves(run._replace(key=()))
    small = sum(nbytes(leaf) for leaf in leaves if not is_large(leaf))
    blocks = [max(BLOCK_BYTES, nbytes(leaf) // max(leaf.shape[0], 1)) for leaf in leaves if is_large(leaf)]
    return COPIES_IN_SAVING * small + max(blocks, default=0)


def estimate(prepared: PreparedRun, strategy: Strategy, seed: int | None = None) -> Estimate:
    """Returns what one seed of a run needs, or all of a group that trains at once.

    Args:
      prepared: the prepared run.
      strategy: how cohorts are mapped.
      seed: whose federation is counted; the first one by default.
    """
    config, copies = prepared.config, strategy.num_devices
    seed = config.seeds[0] if seed is None else seed
    federation, per_round = prepared.federations[seed], config.clients_per_round
    examples, rounds = example_memory(federation, config.examples, strategy, per_round, config.rounds_per_dispatch)
    windows = window_plan(prepared, rounds)
    slots, kind = table_slots(prepared, strategy, min(rounds, windows.rounds or rounds))
    run = jax.eval_shape(lambda: prepared.start(seed, slots, window_rounds=windows.rounds))
    placed = strategy.placement(run)
    held = {
        name: _held(getattr(run, name), placed and getattr(placed, name)) for name in ("table", "state", "observers")
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
        "client table": held["table"] + 2 * row * width,
        "algorithm": held["state"],
        "observers": held["observers"],
        "cohorts": COHORT_BYTES * rounds * width,
    }
    host, saved = {"client table": 0, "windows": windows.host_bytes}, run
    disk = {"client table": row * participants(prepared) if kind == "file" else 0, "windows": windows.disk_bytes}
    if kind == "host":
        host["client table"] = row * participants(prepared)
        taken = lambda leaf: jax.ShapeDtypeStruct((participants(prepared), *leaf.shape), leaf.dtype)
        saved = run._replace(table=jax.tree.map(taken, one_row))
    elif kind == "file":
        # The dispatch that is written back and the one that is read ahead.
        host["client table"] = 2 * slots * row + INDEX_BYTES * prepared.setting.num_clients
        saved = run._replace(table=())
    host["checkpoint"] = _saving(saved)
    index = tree.nbytes(federation.shapes()._replace(examples=()))
    device = vmapped_bytes(config, device, index)
    told = _remedies(prepared, strategy, kind, should_stream(federation, config.examples)) | window_remedies(
        prepared, windows
    )
    return Estimate(device, host, copies, told, disk)


def _remedies(prepared: PreparedRun, strategy: Strategy, kind: str, streamed: bool) -> dict[str, str]:
    config, together = prepared.config, strategy.chunk != 1 and prepared.config.clients_per_round > 1
    chunked = "--strategy=chunked:k=1, or "
    return {
        "examples": "choose a smaller data set" if streamed else "set --examples=stream",
        "test set": "evaluate on fewer with --eval_examples",
        "validation set": "lower --val_fraction",
        "model": "choose a smaller --model",
        "clients in training": (f"set {chunked}" if together else "choose ") + "a smaller --model",
        "local batches": (f"set {chunked}" if together else "set ") + "a smaller --batch_size or --local_epochs",
        "activations": (f"set {chunked}" if together else "set ") + "a smaller --batch_size",
        "client table": TABLE_REMEDIES[kind],
        "cohorts": f"lower --rounds_per_dispatch={config.rounds_per_dispatch}",
    }


# What windows beyond the device may have there: the vectors of a dispatch.
DISPATCH_BYTES = 192 << 20
BEYOND = {"host": "set --window=file, or shorten the windows", "file": "choose a smaller --model"}


class WindowPlan(NamedTuple):
    """Where windows live.

    Attributes:
      kind: 'device', 'host' or 'file'.
      rounds: the most of a dispatch; None on the device, where there is no bound.
      ring_bytes: of all rings, in full.
      lent_bytes: of what a dispatch has on the device where they live elsewhere.
    """

    kind: str
    rounds: int | None
    ring_bytes: int
    lent_bytes: int

    @property
    def host_bytes(self) -> int:
        """What they take in main memory, beside what the device has."""
        # What is read ahead, and what is written back from devices with memory of their own.
        passing = self.lent_bytes
        return {"device": 0, "host": self.ring_bytes + passing, "file": passing}[self.kind]

    @property
    def disk_bytes(self) -> int:
        """What they take on the disk, without the models that only older checkpoints need."""
        return self.ring_bytes if self.kind == "file" else 0


def _lent_bytes(found: list[rings.PartialRing], rounds: int) -> int:
    # What is pushed is there twice: while a dispatch fills one, the other is written back.
    return sum(
        (2 * rounds + rings.max_earlier(rounds, ring.ages)) * ring.shape[1] * ring.dtype.itemsize for ring in found
    )


def window_plan(prepared: PreparedRun, rounds: int) -> WindowPlan:
    """Returns where windows live; computes nothing.

    Args:
      prepared: the prepared run.
      rounds: the most rounds that a dispatch would hold.
    """
    run: Any = jax.eval_shape(lambda: prepared.start(prepared.config.seeds[0], 1, window_rounds=1))
    found = [node.ring for node in windows_of(run).values()]
    size = sum(ring.shape[0] * ring.shape[1] * ring.dtype.itemsize for ring in found)
    kind = prepared.config.window
    if kind == "auto":
        memory = total_memory()
        beyond = "file" if memory is not None and size > HOST_SHARE * memory else "host"
        kind = "device" if size <= HOST_TABLE_BYTES else beyond
        if kind == "file" and size > free_disk(prepared.config.out_dir or "."):
            kind = "device"  # which refuses it, and says what to shorten
    if not found or kind == "device":
        return WindowPlan("device", None, size, 0)
    most = next((n for n in range(rounds, 1, -1) if _lent_bytes(found, n) <= DISPATCH_BYTES), 1)
    return WindowPlan(kind, most, size, _lent_bytes(found, most))


def window_remedies(prepared: PreparedRun, plan: WindowPlan) -> dict[str, str]:
    """Returns part of an estimate -> what makes windows smaller."""
    config = prepared.config
    around = f"--algorithm={config.algorithm}" + "".join(f" or --wrap={text}" for text in config.wrap)
    # Devices of a CPU have no other memory than the host's.
    place = "file" if jax.default_backend() == "cpu" else "host"
    elsewhere = f"set --window={place}, or " if plan.kind == "device" and plan.ring_bytes else ""
    found = {"algorithm": f"{elsewhere}shorten the windows of {around}"}
    found["observers"] = f"{elsewhere}shorten the windows of --observe={','.join(config.observe)}"
    return found | ({"windows": BEYOND[plan.kind]} if plan.kind in BEYOND else {})


# Parts of an estimate that every seed has, and those of which there is one more: a state on its way to or from a lane.
PER_SEED = ("validation set", "clients in training", "local batches", "cohorts")


PER_SEED_AND_TRANSFERRED = ("model", "client table", "algorithm", "observers")


def vmapped_bytes(config: Config, device: Mapping[str, int], index: int) -> dict[str, int]:
    """Returns what the seeds that train at once need of a device.

    Args:
      config: the flags.
      device: part -> bytes that one seed needs.
      index: bytes of the examples that say who holds which.
    """
    if (lanes := group_size(config)) == 1:
        return dict(device)
    times = dict.fromkeys(PER_SEED, lanes) | dict.fromkeys(PER_SEED_AND_TRANSFERRED, lanes + 1)
    found = {part: size * times.get(part, 1) for part, size in device.items()}
    return found | {"examples": found["examples"] + (lanes - 1) * index}
