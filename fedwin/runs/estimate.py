"""What a run needs in memory, from shapes alone, and what this machine has: nothing is allocated to find out."""

import dataclasses
import math
import os
import pathlib
from typing import Any, NamedTuple

import jax

from fedwin import tree
from fedwin.engine import validation
from fedwin.engine.evaluate import test_bytes
from fedwin.engine.strategy import Strategy
from fedwin.errors import UserError
from fedwin.residence.examples import residence_bytes, should_stream
from fedwin.residence.first_rows import row_shapes
from fedwin.residence.rows import HOST_COPIES, rows_kind
from fedwin.runs.build import Trial

GIB = 1 << 30
# Arrays of parameters that a client in training has at a time: its model, the gradient, the step made of them.
COPIES_IN_TRAINING = 3
# Bytes per round and client of a dispatch: id, row and slot on the device; the block they are cut from on the host.
COHORT_BYTES = 24
# Bytes per client of the index of rows in a file: record and checksum.
INDEX_BYTES = 12
TABLE_REMEDIES = {
    "device": "set --table=host",
    "host": "set --table=file",
    "file": "lower --rounds_per_dispatch or --clients_per_round, or choose a smaller --model",
}


class Memory(NamedTuple):
    """Bytes that are available; None where the system does not say.

    Attributes:
      host: main memory.
      device: memory of one accelerator; None also where devices are CPUs, which use main memory.
    """

    host: int | None
    device: int | None = None


@dataclasses.dataclass(frozen=True)
class Estimate:
    """Bytes of what a run holds at a time; activations and the compiler's own buffers are not counted.

    Attributes:
      device: part -> bytes on one device.
      host: part -> bytes in main memory.
      devices: how many devices there are.
      remedies: part -> what makes it smaller.
    """

    device: dict[str, int]
    host: dict[str, int]
    devices: int
    remedies: dict[str, str]

    @property
    def parts(self) -> dict[str, int]:
        """Part -> bytes on the host and on all devices together."""
        names = dict.fromkeys([*self.device, *self.host])
        return {name: self.device.get(name, 0) * self.devices + self.host.get(name, 0) for name in names}

    def __str__(self) -> str:
        shown = (f"{name} {size / 1e6:.1f} MB" for name, size in self.parts.items() if size >= 50_000)
        return f"memory: {', '.join(shown)}"

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


def _gib(size: int) -> str:
    return f"{size / GIB:,.1f} GiB"


def available() -> Memory:
    """Returns what this machine has now: of main memory, and of the first device if that has memory of its own."""
    limits = [limit for limit in (_system_memory(), _group_memory()) if limit is not None]
    stats = None if jax.default_backend() == "cpu" else jax.local_devices()[0].memory_stats()
    return Memory(min(limits, default=None), (stats or {}).get("bytes_limit"))


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


def _total_memory() -> int | None:
    """All the main memory that this process may ever have: the same whenever it is asked for."""
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


def _participants(trial: Trial) -> int:
    """The most clients that can take part in a run."""
    return min(trial.setting.num_clients, trial.config.num_rounds * trial.config.clients_per_round)


def table_slots(trial: Trial, strategy: Strategy, rounds: int) -> tuple[int, str]:
    """Returns the rows of the client table in the state, and where all rows live: 'device', 'host' or 'file'.

    Args:
      trial: what runs.
      strategy: pads cohorts.
      rounds: the most rounds that a dispatch holds.
    """
    clients, config = trial.setting.num_clients, trial.config
    params = jax.eval_shape(trial.model.init, jax.random.key(0)).params
    kind = rows_kind(trial.algorithm, params, clients, config.table, (_participants(trial), _total_memory()))
    if kind == "device":
        return clients, kind
    return min(rounds * strategy.multiple(config.clients_per_round), clients), kind


def _held(shapes, placed) -> int:
    """Bytes of a tree on one device, given where its leaves live (None: whole on each)."""
    if placed is None:
        return tree.nbytes(shapes)
    leaves = zip(jax.tree.leaves(shapes), jax.tree.leaves(placed), strict=True)
    return sum(math.prod(where.shard_shape(leaf.shape)) * leaf.dtype.itemsize for leaf, where in leaves)


def _in_training(trial: Trial, federation, strategy: Strategy, model: Any) -> tuple[int, int]:
    """Returns bytes on one device of (the models, the batches) of the clients that it trains at a time."""
    solver, train = trial.solver, trial.dataset.train
    per_device = -(-trial.config.clients_per_round // strategy.num_devices)
    together = min(strategy.chunk or per_device, per_device)
    optimizer = jax.eval_shape(solver.optimizer.init, model.params)
    copies = COPIES_IN_TRAINING * tree.nbytes(model.params) + tree.nbytes((optimizer, model.stats))
    # Integers become float32 when a batch is prepared.
    example = sum(4 * math.prod(train[name].shape[1:]) for name in ("x", "y")) + 4
    order = 4 * solver.batches.places(federation.buckets[-1], solver.max_epochs or solver.epochs)
    return together * copies, together * (order + solver.batch_size * example)


def estimate(trial: Trial, strategy: Strategy, seed: int | None = None) -> Estimate:
    """Returns what one seed of a run needs.

    Args:
      trial: what runs.
      strategy: how cohorts are mapped.
      seed: whose federation is counted; the first one by default.
    """
    config, copies = trial.config, strategy.num_devices
    seed = config.seeds[0] if seed is None else seed
    federation, per_round = trial.federations[seed], config.clients_per_round
    examples, rounds = residence_bytes(federation, config.examples, strategy, per_round, config.rounds_per_dispatch)
    slots, kind = table_slots(trial, strategy, rounds)
    run = jax.eval_shape(lambda: trial.start(seed, slots))
    placed = strategy.placement(run)
    held = {
        name: _held(getattr(run, name), placed and getattr(placed, name)) for name in ("table", "state", "observers")
    }
    model = jax.eval_shape(trial.model.init, jax.random.key(0))
    row = tree.nbytes(row_shapes(trial.algorithm, model.params))
    training, batches = _in_training(trial, federation, strategy, model)
    width = strategy.multiple(per_round)
    device = {
        "examples": examples,
        "test set": test_bytes(trial.dataset, config.eval_examples, config.eval_batch_size, copies) // copies,
        "validation set": validation.pool_bytes(trial.federations) // copies if config.eval_val else 0,
        "model": tree.nbytes((run.params, run.stats)),
        "clients in training": training,
        "local batches": batches,
        "client table": held["table"] + 2 * row * width,
        "algorithm": held["state"],
        "observers": held["observers"],
        "cohorts": COHORT_BYTES * rounds * width,
    }
    host = {"client table": 0, "checkpoint": tree.nbytes(run._replace(key=()))}
    if kind == "host":
        host["client table"] = row * _participants(trial)
        host["checkpoint"] += (HOST_COPIES - 1) * row * _participants(trial)
    elif kind == "file":
        # The dispatch that is written back and the one that is read ahead.
        host["client table"] = 2 * slots * row + INDEX_BYTES * trial.setting.num_clients
        host["checkpoint"] = tree.nbytes(run._replace(key=(), table=()))
    return Estimate(device, host, copies, _remedies(trial, strategy, kind, should_stream(federation, config.examples)))


def _remedies(trial: Trial, strategy: Strategy, kind: str, streamed: bool) -> dict[str, str]:
    config, together = trial.config, strategy.chunk != 1 and trial.config.clients_per_round > 1
    chunked = "--strategy=chunked:k=1, or "
    return {
        "examples": "choose a smaller data set" if streamed else "set --examples=stream",
        "test set": "evaluate on fewer with --eval_examples",
        "validation set": "lower --val_fraction",
        "model": "choose a smaller --model",
        "clients in training": (f"set {chunked}" if together else "choose ") + "a smaller --model",
        "local batches": (f"set {chunked}" if together else "set ") + "a smaller --batch_size or --local_epochs",
        "client table": TABLE_REMEDIES[kind],
        "algorithm": f"shorten the windows of --algorithm={config.algorithm}"
        + "".join(f" or --wrap={text}" for text in config.wrap),
        "observers": f"shorten the windows of --observe={','.join(config.observe)}",
        "cohorts": f"lower --rounds_per_dispatch={config.rounds_per_dispatch}",
    }
