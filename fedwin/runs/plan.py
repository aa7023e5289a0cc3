"""RunPlan: the decisions about a run before anything is compiled, and its requirements, taken and checked once."""

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax

from fedwin import engine, multi_process, tree
from fedwin.data.federation import Federation
from fedwin.engine import evaluate
from fedwin.engine.communication import stacked_bytes
from fedwin.engine.strategy import Strategy
from fedwin.errors import UserError
from fedwin.residence.blockwise import BLOCK_BYTES
from fedwin.residence.examples import StreamedExamples, TrainingExamples, make_examples, should_stream
from fedwin.residence.rings import max_earlier, old_models_of, partial_rings
from fedwin.residence.rows import HOST_SHARE, HOST_TABLE_BYTES, row_shapes, table_kind
from fedwin.runs.checkpoint import is_large
from fedwin.runs.machine import Memory, free_disk, total_memory
from fedwin.runs.prepare import PreparedRun
from fedwin.tree import PyTree

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
# Maximum bytes on the device for the vectors of a dispatch, if windows are offloaded.
WINDOW_BYTES = 192 << 20
# Parts that exist once per vmapped seed, and parts with one more: a state that is copied in or out.
PER_SEED = ("validation set", "clients in training", "local batches", "messages", "cohorts")
PER_SEED_AND_TRANSFERRED = ("model", "client table", "algorithm", "old models", "observers")


@dataclasses.dataclass(frozen=True)
class Requirements:
    """Estimated memory and disk space of a run in bytes, without buffers of the compiler.

    Attributes:
      device: part -> bytes on one device.
      host: part -> bytes in main memory.
      disk: part -> bytes on disk.
      devices: number of devices.
      remedies: part -> advice for making it smaller.
    """

    device: dict[str, int]
    host: dict[str, int]
    disk: dict[str, int]
    devices: int
    remedies: dict[str, str]

    @property
    def parts(self) -> dict[str, int]:
        """Part -> bytes in main memory and on all devices."""
        names = dict.fromkeys([*self.device, *self.host])
        return {name: self.device.get(name, 0) * self.devices + self.host.get(name, 0) for name in names}

    def __str__(self) -> str:
        texts = [f"{name} {size / 1e6:.1f} MB" for name, size in self.parts.items() if size >= 50_000]
        without = "without the compiler's buffers, which --dry_run counts"
        return f"memory: {', '.join(texts if 'activations' in self.device else [*texts, without])}"

    def with_activations(self, temporaries: int) -> "Requirements":
        """Adds a part for the compiler's buffers, given a dispatch's on one device, models and batches included."""
        estimated = self.device["clients in training"] + self.device["local batches"]
        return dataclasses.replace(self, device=self.device | {"activations": max(temporaries - estimated, 0)})

    def fits(self, memory: Memory) -> bool:
        """Returns whether the run fits into memory."""
        try:
            self.check_memory(memory)
        except UserError:
            return False
        return True

    def check_memory(self, memory: Memory) -> None:
        """Raises UserError, naming the largest part and a remedy, unless the run fits into memory."""
        if memory.device is None:
            self._check("memory", self.parts, memory.host)
        else:
            self._check("device memory", self.device, memory.device)
            self._check("memory", self.host, memory.host)

    def check_disk(self, free: int) -> None:
        """Raises UserError, naming the largest part and a remedy, unless the run's files fit on the disk."""
        self._check("disk space", self.disk, free)

    def _check(self, resource: str, parts: Mapping[str, int], available: int) -> None:
        needed = sum(parts.values())
        if needed > available:
            largest = max((part for part in parts if part in self.remedies), key=lambda part: parts[part])
            raise UserError(
                f"{largest}: {parts[largest] / 1e6:,.1f} of the {needed / 1e6:,.1f} MB of {resource} that this run "
                f"needs, and {available / 1e6:,.1f} MB are available; {self.remedies[largest]}."
            )


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


@dataclasses.dataclass(frozen=True)
class RunPlan:
    """How a run is executed.

    Attributes:
      table: where client rows are stored: 'device', 'host' or 'file'.
      windows: where windows are stored.
      groups: the seeds that train together; groups of one train one after the other.
    """

    prepared: PreparedRun
    strategy: Strategy
    table: str
    windows: WindowPlan
    groups: tuple[tuple[int, ...], ...]

    def __str__(self) -> str:
        at_once = f"; {self.num_vmapped} seeds at once" if self.num_vmapped > 1 else ""
        return (
            f"strategy {self.strategy}; client rows on {self.table}, windows on {self.windows.kind}; dispatches of at "
            f"most {min(self._examples[1], self.windows.rounds or self._examples[1])} rounds{at_once}"
        )

    @property
    def num_vmapped(self) -> int:
        """Length of the vmapped axis of seeds; 1: none."""
        return max(len(group) for group in self.groups)

    def slots(self, rounds: int) -> int:
        """Returns the number of rows of the table in the state, for dispatches of at most `rounds` rounds."""
        setting = self.prepared.setting
        if self.table == "device":
            return setting.num_clients
        return min(rounds * self.strategy.multiple(setting.sampling.largest), setting.num_clients)

    def examples(self, federation: Federation, shared=None) -> TrainingExamples:
        """Returns the examples that clients of the run train or are evaluated on; `shared` as in make_examples."""
        config, largest = self.prepared.config, self.prepared.setting.sampling.largest
        return make_examples(federation, config.examples, self.strategy, largest, config.rounds_per_dispatch, shared)

    @functools.cached_property
    def _examples(self) -> tuple[int, int]:
        """Bytes of the examples on one device, and the maximum number of rounds of a dispatch."""
        config = self.prepared.config
        if not should_stream(self._federation, config.examples):
            return tree.nbytes(self._federation.shapes()), config.rounds_per_dispatch
        examples = self.examples(self._federation)
        examples.close()
        assert isinstance(examples, StreamedExamples)
        # The dispatch that is trained on, and the next one.
        return 2 * examples.capacities[0] * examples.example_bytes, examples.rounds

    @property
    def _federation(self) -> Federation:
        return self.prepared.federations[self.prepared.config.seeds[0]]

    @functools.cached_property
    def shapes(self) -> engine.RunState:
        """Shapes of the first seed's state in training."""
        rounds = min(self._examples[1], self.windows.rounds or self._examples[1])
        return _shapes(self.prepared, self.slots(rounds), self.windows.rounds)

    def check(self, memory: Memory) -> None:
        """Raises UserError unless seeds, evaluations and memory go with the decisions."""
        self._check_groups()
        config = self.prepared.config
        if config.eval_clients and self.prepared.algorithm.client_model is not None and self.table != "device":
            raise UserError(
                f"eval_clients={config.eval_clients} evaluates the clients' own models, whose rows must be on the "
                f"device, and they are in the {self.table}; set --table=device, or omit --eval_clients."
            )
        self.requirements.check_memory(memory)

    def _check_groups(self) -> None:
        """Raises UserError if seeds are to be vmapped (--seeds_at_once) and cannot be."""
        if self.num_vmapped == 1:
            return
        config, processes, windows = self.prepared.config, multi_process.count(), self.windows.kind
        infos = [{n: leaf.shape for n, leaf in f.shapes().info.items()} for f in self.prepared.federations.values()]
        streamed = should_stream(self._federation, config.examples)
        on_one_device = "keeps everything on one device, and"
        for refused, why, remedy in (
            (processes > 1, f"works in one process, and there are {processes}", "leave it out"),
            (config.strategy == "auto", "does not go with strategy=auto", "name one: --strategy=vmapped"),
            (self.strategy.mesh, f"{on_one_device} strategy={self.strategy} has several", "set --strategy=vmapped"),
            (streamed, f"{on_one_device} examples are streamed", "set --examples=device"),
            (self.table != "device", f"{on_one_device} client rows are on {self.table}", "set --table=device"),
            (windows != "device", f"{on_one_device} windows are on {windows}", "set --window=device"),
            (
                any(info != infos[0] for info in infos),
                "is impossible: clients have information of different shapes under different seeds",
                "set --partition_seed",
            ),
        ):
            if refused:
                raise UserError(f"seeds_at_once={config.seeds_at_once} {why}; {remedy}, or --seeds_at_once=1.")

    @functools.cached_property
    def requirements(self) -> Requirements:
        """Memory and disk space of the run, whose seeds train one group after the other."""
        prepared, strategy, config = self.prepared, self.strategy, self.prepared.config
        run, model, copies = self.shapes, prepared.shapes, strategy.num_devices
        placed = strategy.placement(run)
        of_state = {
            name: _device_bytes(getattr(run, name), placed and getattr(placed, name))
            for name in ("table", "state", "observers")
        }
        row, width = self._row_bytes, strategy.multiple(prepared.setting.sampling.largest)
        training, batches = self._training_bytes()
        store, n_max = self._federation.shapes(), self._federation.buckets[-1]
        # Broadcasts of an asynchronous server (wrappers.asynchronous).
        old = tree.nbytes(run.state.own) if config.asynchronous else 0
        messages = stacked_bytes(prepared.algorithm, model.params, store, n_max, model.stats)
        test = evaluate.test_bytes(prepared.dataset, config.eval_examples, config.eval_batch_size, copies)
        device = {
            "examples": self._examples[0],
            "test set": test // copies,
            "validation set": evaluate.validation_bytes(prepared.federations) // copies if config.eval_val else 0,
            "model": tree.nbytes((run.params, run.stats)),
            "clients in training": training,
            "local batches": batches,
            "client table": of_state["table"] + 2 * row * width,
            "messages": COPIES_OF_MESSAGES * width * messages,
            "algorithm": of_state["state"] - old,
            "old models": old,
            "observers": of_state["observers"],
            "cohorts": COHORT_BYTES * self._examples[1] * width,
            "client evaluation": self._client_evaluation_bytes(),
        }
        if (n := self.num_vmapped) > 1:
            times = dict.fromkeys(PER_SEED, n) | dict.fromkeys(PER_SEED_AND_TRANSFERRED, n + 1)
            device = {part: size * times.get(part, 1) for part, size in device.items()}
            device["examples"] += (n - 1) * tree.nbytes(store._replace(examples={}))
        return Requirements(device, self._host_bytes(), self._disk_bytes(), copies, self._remedies())

    @property
    def _row_bytes(self) -> int:
        """Bytes of one client's row."""
        leaves = jax.tree.leaves(self.shapes.table)
        return tree.nbytes(leaves) // leaves[0].shape[0] if leaves else 0

    def _training_bytes(self) -> tuple[int, int]:
        """Returns the bytes on one device of (models, batches) of the clients that train at the same time."""
        solver, train, model = self.prepared.solver, self.prepared.dataset.train, self.prepared.shapes
        per_device = -(-self.prepared.setting.sampling.largest // self.strategy.num_devices)
        concurrent = min(self.strategy.chunk or per_device, per_device)
        optimizer = jax.eval_shape(solver.optimizer.init, model.params)
        copies = COPIES_IN_TRAINING * tree.nbytes(model.params) + tree.nbytes((optimizer, model.stats))
        # Integers become float32 when a batch is prepared.
        example = sum(4 * math.prod(train[name].shape[1:]) for name in ("x", "y")) + 4
        order = 4 * solver.places(self._federation.buckets[-1])
        return concurrent * copies, concurrent * (order + solver.batch_size * example)

    def _client_evaluation_bytes(self) -> int:
        """Returns the bytes of the per-client evaluation on one device: examples, their index and the read-outs.

        The clients of a block take no more than those that train at the same time.
        """
        prepared, size = self.prepared, 0
        if not prepared.evaluated:
            return 0
        for clients in prepared.evaluated[prepared.config.seeds[0]].values():
            store = clients.federation.shapes()
            # Held-out examples are among the training examples.
            held_out = clients.federation.dataset is prepared.dataset
            streamed = should_stream(clients.federation, prepared.config.examples)
            size += tree.nbytes(store._replace(examples={}) if held_out or streamed else store)
        read = lambda run: engine.read_out(prepared.algorithm, prepared.observers, run)
        return size + 2 * tree.nbytes(jax.eval_shape(read, self.shapes))

    def _host_bytes(self) -> dict[str, int]:
        """Returns part -> bytes in main memory."""
        # Rows of the dispatch that is written back, and of the prefetched one.
        saved, in_transfer, table = self.shapes, 2 * tree.nbytes(self.shapes.table), 0
        if self.table == "host":
            table = in_transfer + self._row_bytes * _participants(self.prepared)
            stored = lambda leaf: jax.ShapeDtypeStruct((_participants(self.prepared), *leaf.shape[1:]), leaf.dtype)
            saved = saved._replace(table=jax.tree.map(stored, saved.table))
        elif self.table == "file":
            table = in_transfer + INDEX_BYTES * self.prepared.setting.num_clients
            saved = saved._replace(table=())
        # A checkpoint is written from copies of small arrays, and from one block of large ones at a time.
        leaves = jax.tree.leaves((_without_table(saved), saved.table))
        small = tree.nbytes([leaf for leaf in leaves if not is_large(leaf)])
        blocks = [max(BLOCK_BYTES, tree.nbytes(leaf) // max(leaf.shape[0], 1)) for leaf in leaves if is_large(leaf)]
        saving = COPIES_IN_SAVING * small + max(blocks, default=0)
        # Vectors that are prefetched, and written back from devices with their own memory.
        windows = self.windows.partial_bytes + (self.windows.ring_bytes if self.windows.kind == "host" else 0)
        return {"client table": table, "windows": windows, "checkpoint": saving}

    def _disk_bytes(self) -> dict[str, int]:
        """Returns part -> bytes of the checkpoints, client rows and windows of all seeds."""
        config, seeds, in_file = self.prepared.config, len(self.prepared.config.seeds), self.windows.kind == "file"
        everybody, participants = self.prepared.setting.num_clients, _participants(self.prepared)
        rounds, interval = config.num_rounds, config.checkpoint_every or config.num_rounds
        written = 2 + (rounds - 1) // interval + sum(r % interval > 0 for r in {*config.keep_rounds} - {rounds})
        kept = min(max(config.keep_checkpoints, 1) + len(config.keep_rounds), written)
        rows = {"device": everybody, "host": participants, "file": 0}[self.table]
        state = self.shapes if in_file or self.windows.rounds is None else _shapes(self.prepared, 1, None)
        checkpoint = tree.nbytes(_without_table(state)) + self._row_bytes * rows
        parts = {"checkpoints": kept * seeds * checkpoint}
        if self.table == "file":
            # Changing a row does not overwrite the version that a checkpoint needs.
            changed = min(interval * self.prepared.setting.sampling.largest, participants)
            parts["rows in files"] = seeds * self._row_bytes * (participants + kept * changed)
        return parts | ({"windows in files": seeds * self.windows.ring_bytes} if in_file else {})

    def _remedies(self) -> dict[str, str]:
        """Returns part -> advice for making it smaller."""
        config = self.prepared.config
        one_by_one = self.strategy.chunk != 1 and self.prepared.setting.sampling.largest > 1
        chunked = "set --strategy=chunked:k=1, or " if one_by_one else ""
        advice = {
            "examples": "set --examples=stream",
            "test set": "evaluate on fewer with --eval_examples",
            "validation set": "lower --val_fraction",
            "model": "choose a smaller --model",
            "clients in training": chunked + "choose a smaller --model",
            "local batches": chunked + "set a smaller --batch_size or --local_epochs",
            "activations": chunked + "set a smaller --batch_size",
            "client evaluation": "omit --eval_clients",
            "messages": "lower --clients_per_round, set --aggregate=mean, or choose a smaller --model",
            "cohorts": f"lower --rounds_per_dispatch={config.rounds_per_dispatch}",
            "checkpoints": "lower --keep_checkpoints, or choose another --out_dir",
            "rows in files": "lower --clients_per_round or --num_rounds, or choose another --out_dir",
            "windows in files": "shorten the windows, or choose another --out_dir",
        }
        if should_stream(self._federation, config.examples):
            advice["examples"] = "choose a smaller data set"
        advice["client table"] = {
            "device": "set --table=host",
            "host": "set --table=file",
            "file": "lower --rounds_per_dispatch or --clients_per_round, or choose a smaller --model",
        }[self.table]
        if self.windows.kind != "device":
            shorter = {"host": "set --window=file, or shorten the windows", "file": "choose a smaller --model"}
            advice["windows"] = shorter[self.windows.kind]
        # CPU devices use main memory.
        elsewhere = "file" if jax.default_backend() == "cpu" else "host"
        offload = ""
        if self.windows.kind == "device" and self.windows.ring_bytes:
            offload = f"set --window={elsewhere}, or "
        flags = f"--algorithm={config.algorithm}" + "".join(f" or --wrap={text}" for text in config.wrap)
        advice["algorithm"] = f"{offload}shorten the windows of {flags}"
        advice["old models"] = f"{offload}lower max_staleness or concurrency of --asynchronous={config.asynchronous}"
        advice["observers"] = f"{offload}shorten the windows of --observe={','.join(config.observe)}"
        return advice


def seed_groups(seeds: Sequence[int], at_once: int) -> tuple[tuple[int, ...], ...]:
    """Returns the groups of at most `at_once` vmapped seeds: as few as possible, of equal sizes except the last.

    >>> seed_groups([0, 1, 2, 3, 4], at_once=4)
    ((0, 1, 2), (3, 4))
    """
    number = -(-len(seeds) // min(at_once, len(seeds)))
    size = -(-len(seeds) // number)
    return tuple(tuple(seeds[at : at + size]) for at in range(0, len(seeds), size))


def make_plan(prepared: PreparedRun, strategy: Strategy) -> RunPlan:
    """Decides where client rows and windows are and which seeds train together; UserError if parts don't fit."""
    _ = prepared.bytes_per_client  # traced before others: its messages name the function with an error
    clients, config = prepared.setting.num_clients, prepared.config
    room = _participants(prepared), total_memory()
    table = table_kind(prepared.algorithm, prepared.shapes.params, clients, config.table, room)
    rows = jax.tree.leaves(row_shapes(prepared.algorithm, prepared.shapes.params))
    if table != "device" and any(map(tree.is_key, rows)):
        raise UserError(f"table={table}: clients keep PRNG keys; keep jax.random.key_data(key), or set --table=device.")
    groups = seed_groups(config.seeds, config.seeds_at_once)
    return RunPlan(prepared, strategy, table, _window_plan(prepared), groups)


def _participants(prepared: PreparedRun) -> int:
    return min(prepared.setting.num_clients, prepared.config.num_rounds * prepared.setting.sampling.largest)


def _shapes(prepared: PreparedRun, slots: int, window_rounds: int | None) -> engine.RunState:
    start = lambda: prepared.start(prepared.config.seeds[0], slots, window_rounds=window_rounds)
    return jax.eval_shape(start)


def _window_plan(prepared: PreparedRun) -> WindowPlan:
    """Decides where windows are stored."""
    shapes = _shapes(prepared, 1, window_rounds=1)
    partial = [*partial_rings(shapes).values()]
    size = sum(ring.shape[0] * ring.shape[1] * ring.dtype.itemsize for ring in partial)
    if (old := old_models_of(shapes)) is not None:
        of_model = tree.nbytes(old.models) // old.room(1)
        size += len(old.place) * of_model
    kind: str = prepared.config.window
    if kind == "auto":
        offloaded = "file" if size > HOST_SHARE * total_memory() else "host"
        kind = "device" if size <= HOST_TABLE_BYTES else offloaded
        if kind == "file" and size > free_disk(prepared.config.out_dir or "."):
            kind = "device"  # whose memory check names the windows to shorten
    if not (partial or old) or kind == "device":
        return WindowPlan("device", None, size, 0)

    def vectors(rounds: int) -> int:
        # There are two buffers for new vectors: while a dispatch fills one, the other is written back.
        models = 0 if old is None else 2 * old.room(rounds) * of_model
        return models + sum(
            (2 * rounds + max_earlier(rounds, ring.ages)) * ring.shape[1] * ring.dtype.itemsize for ring in partial
        )

    longest = prepared.config.rounds_per_dispatch
    most = next((n for n in range(longest, 1, -1) if vectors(n) <= WINDOW_BYTES), 1)
    return WindowPlan(kind, most, size, vectors(most))


def _device_bytes(shapes, placed) -> int:
    """Returns the bytes of a tree on one device, given the shardings of its leaves (None: replicated)."""
    if placed is None:
        return tree.nbytes(shapes)
    leaves = zip(jax.tree.leaves(shapes), jax.tree.leaves(placed), strict=True)
    return sum(math.prod(where.shard_shape(leaf.shape)) * leaf.dtype.itemsize for leaf, where in leaves)


def _without_table(run: engine.RunState) -> PyTree:
    return run.params, run.stats, run.state, run.observers, run.round
