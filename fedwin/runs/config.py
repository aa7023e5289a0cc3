"""Types and ranges of the fields of a Config."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from fedwin.errors import UserError
from fedwin.registry.checks import one_of

# Counts live in int32 on the device.
MOST = 2**31 - 1

# Fields that are lists of integers.
INTEGERS = ("seeds", "keep_rounds")

_KINDS = {int: "an integer", float: "a number", str: "text", bool: "True or False"}


def check_type(name: str, default: Any, value: Any) -> None:
    """Raises UserError unless a value is of its field's type.

    Args:
      name: of the field.
      default: its default.
      value: what is given.
    """
    kind = type(default)
    if kind is list:
        if not isinstance(value, (list, tuple)):
            raise UserError(f"{name}={value!r} must be a list.")
        if name not in INTEGERS and not all(isinstance(item, str) for item in value):
            raise UserError(f"{name}={value!r} must be a list of texts.")
        return
    accepted = (int, float) if kind is float else (kind,)
    if not isinstance(value, accepted) or (isinstance(value, bool) and kind is not bool):
        raise UserError(f"{name}={value!r} must be {_KINDS[kind]}.")


def check_range(name: str, bounds: Mapping[str, Any], value: Any) -> None:
    """Raises UserError unless a value lies where its field's values do.

    Args:
      name: of the field.
      bounds: its 'least', 'below' and 'words'.
      value: what is given.
    """
    least, below = bounds["least"], bounds["below"]
    if bounds["words"]:
        one_of("", name, value, bounds["words"])
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return
    if not math.isfinite(value):
        raise UserError(f"{name}={value} must be a finite number.")
    if below is not None and not least <= value < below:
        raise UserError(f"{name}={value} must lie in [{least}, {below}).")
    if least is not None and value < least:
        raise UserError(
            f"{name}={value} must not be negative." if least == 0 else f"{name}={value} must be at least {least}."
        )
    if isinstance(value, int) and value > MOST:
        raise UserError(f"{name}={value} must be at most {MOST}: counts are 32-bit integers on the device.")


# Groups of flags, as --help shows them.
GROUPS = ("what is trained", "federation", "clients", "server", "read-outs", "running", "output")

SCHEDULES = ("", "cosine")
OPTIMIZERS = ("sgd", "adam", "adamw", "adagrad", "rmsprop", "yogi")


def option(default, group: str, help: str, *, least=None, below=None, words=(), operational=False):
    """One field of Config.

    Args:
      default: its value where none is given.
      group: one of GROUPS.
      help: what it means, one line.
      least: smallest value.
      below: bound that the value must stay under.
      words: the values that there are.
      operational: whether a resumed run may change it, because it does not change what is computed.
    """
    metadata = {
        "help": help,
        "group": group,
        "least": least,
        "below": below,
        "words": words,
        "operational": operational,
    }
    if isinstance(default, list):
        return dataclasses.field(default_factory=lambda: list(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True)
class Config:
    """Everything that decides what a run computes, and where it writes.

    A choice with parameters is written `name:key=value,key=value`.
    """

    algorithm: str = option("fedavg", "what is trained", "Method, e.g. fedavg, fedprox:mu=0.1, scaffold.")
    wrap: list[str] = option(
        [],
        "what is trained",
        "Changes training around the algorithm: ima:window=5,start=0.75, swa:cycle=10, clip:norm=1, local_bn; repeats.",
    )
    model: str = option("cnn", "what is trained", "Network: mlp, cnn, lenet5, mcmahan_cnn, emnist_cnn, resnet20 ...")
    loss: str = option("cross_entropy", "what is trained", "Local loss: cross_entropy, wsm, wsm:proportions=train.")
    augment: str = option(
        "none",
        "what is trained",
        "Augmentation of training images: none, flip, crop_flip:padding=4, crop_flip:size=224.",
    )
    precision: str = option(
        "float32",
        "what is trained",
        "float32 (true float32 products), tf32 (the device's fast default), bfloat16 (compute), float64.",
        words=("float32", "tf32", "bfloat16", "float64"),
    )
    dataset: str = option("digits", "federation", "Data set: digits, cifar10, cifar100:label=coarse, mnist, fmnist ...")
    data_dir: str = option("", "federation", "Folder with its files; built-in data needs none.", operational=True)
    partition: str = option(
        "",
        "federation",
        "Who holds what: iid, shards:per_client=2, dirichlet:alpha=0, csv:path=FILE, natural ...; "
        "empty: the data set's own clients, else iid.",
    )
    num_clients: int = option(
        0, "federation", "Clients K; 0: the data set's own or the split file's, else 100.", least=0
    )
    clients_per_round: int = option(10, "federation", "Clients that take part in a round.", least=1)
    num_rounds: int = option(400, "federation", "Rounds T.", least=1)
    partition_seed: int = option(-1, "federation", "Seed of the partition; -1: the run's own seed.", least=-1)
    val_fraction: float = option(
        0.0, "federation", "Share of every client's examples that is held out for validation.", least=0, below=1
    )
    local_epochs: int = option(1, "clients", "Local epochs E.", least=1)
    batch_size: int = option(32, "clients", "Local batch size B.", least=1)
    client_lr: float = option(0.1, "clients", "Local learning rate.", least=0)
    lr_decay: float = option(
        0.0, "clients", "Decay of the local rate per round: lr * (1 - lr_decay)^round.", least=0, below=1
    )
    lr_schedule: str = option(
        "",
        "clients",
        "Course of the local rate over the rounds: cosine = lr * (1 + cos(pi * round / num_rounds)) / 2; empty: none.",
        words=SCHEDULES,
    )
    client_optimizer: str = option(
        "sgd", "clients", f"Local optimiser from optax: {', '.join(OPTIMIZERS)}.", words=OPTIMIZERS
    )
    client_momentum: float = option(0.0, "clients", "Local momentum of sgd, fresh in every round.", least=0, below=1)
    weight_decay: float = option(0.0, "clients", "Weight decay lambda of the local steps.", least=0)
    wd_in_loss: bool = option(False, "clients", "Put weight decay into the loss (FedJAX), not the step (PyTorch).")
    clip_norm: float = option(0.0, "clients", "Clip the local direction to this global norm; 0: no clipping.", least=0)
    batching: str = option(
        "epoch",
        "clients",
        "epoch: E*ceil(N/B) steps, last batch short; repeat: FedJAX's ceil(E*N/B) full batches.",
        words=("epoch", "repeat"),
    )
    shuffle: bool = option(True, "clients", "Shuffle the local examples in every local epoch.")
    server_lr: float = option(0.0, "server", "Server learning rate; 0: the algorithm's default.", least=0)
    weighting: str = option(
        "",
        "server",
        "Aggregation weights: samples or uniform; empty: the algorithm's default.",
        words=("", "samples", "uniform"),
    )
    observe: list[str] = option(
        [],
        "read-outs",
        "Reads the trajectory and leaves training alone: wima:window=100, swa:start=0.75,cycle=10, ema; repeats.",
    )
    eval_every: int = option(10, "read-outs", "Rounds between evaluations.", least=1)
    final_evals: int = option(100, "read-outs", "The last N rounds are all evaluated; their mean is reported.", least=0)
    eval_examples: int = option(
        0, "read-outs", "Evaluate on so many test examples, one fixed draw for all runs; 0: all.", least=0
    )
    eval_batch_size: int = option(500, "read-outs", "Test examples per evaluation step.", least=1)
    eval_val: bool = option(
        False, "read-outs", "Evaluate on the examples that --val_fraction holds out, too: val_accuracy, val_loss."
    )
    seeds: list[int] = option([0], "running", "Random seeds, one run each: 0,1,2.")
    seeds_at_once: int = option(
        1,
        "running",
        "Seeds that train in one compiled program, for accelerators that one small model can't fill; 1: one seed after "
        "the other. Numbers differ from those by rounding; killed and resumed, a run ends with its own bits.",
        least=1,
    )
    strategy: str = option(
        "default",
        "running",
        "How a cohort is executed: default (a measured table), auto (times them), vmapped, chunked:k=4, "
        "sharded:devices=2; pmap is another word for sharded.",
    )
    table: str = option(
        "auto",
        "running",
        "Where per-client state lives: device, host, file (of the clients that took part), auto.",
        words=("auto", "device", "host", "file"),
        operational=True,
    )
    window: str = option(
        "auto",
        "running",
        "Where models of windows and delays live: device, host, file, auto.",
        words=("auto", "device", "host", "file"),
        operational=True,
    )
    examples: str = option(
        "auto",
        "running",
        "Where training examples live: device, stream (read for each dispatch), auto.",
        words=("auto", "device", "stream"),
        operational=True,
    )
    rounds_per_dispatch: int = option(50, "running", "The most rounds of one dispatch to the device.", least=1)
    stop_on_divergence: bool = option(True, "running", "End a seed at the first NaN or inf; it is recorded either way.")
    fork_from: str = option("", "running", "Start from another run's checkpoint: DIR@ROUND.")
    init_from: str = option(
        "",
        "running",
        "Begin round 0 with the parameters of another run's checkpoint: DIR@ROUND, DIR@ROUND:part=features, "
        "DIR@ROUND:part=classifier.",
    )
    imports: list[str] = option(
        [], "running", "Module or .py file whose registrations are known by name (flag --import); repeats."
    )
    out_dir: str = option(
        "", "output", "Directory of the run; empty: runs/<dataset>_<algorithm>-<hash of the flags>.", operational=True
    )
    checkpoint_every: int = option(
        100, "output", "Rounds between checkpoints; 0: only at the start and the end.", least=0, operational=True
    )
    keep_checkpoints: int = option(3, "output", "Checkpoints that are kept, the newest.", least=1, operational=True)
    keep_rounds: list[int] = option(
        [],
        "output",
        "Rounds whose checkpoints are kept beside the newest, for forks: 75,150.",
        operational=True,
    )

    def __post_init__(self):
        for name in INTEGERS:
            if isinstance(values := getattr(self, name), (list, tuple)):
                object.__setattr__(self, name, [_integer(value) for value in values])

    def check(self) -> None:
        """Raises UserError for a field of a wrong type or out of range; names are checked where they are built."""
        for field in dataclasses.fields(self):
            check_type(field.name, default_of(field), getattr(self, field.name))
            check_range(field.name, field.metadata, getattr(self, field.name))
        if not self.seeds:
            raise UserError("seeds: give at least one, e.g. --seeds=0,1,2.")
        for seed in self.seeds:
            if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= MOST:
                raise UserError(f"seeds: '{seed}' is not an integer in 0..{MOST}.")
        for round in self.keep_rounds:
            if isinstance(round, bool) or not isinstance(round, int) or not 0 <= round <= self.num_rounds:
                raise UserError(f"keep_rounds: '{round}' is no round of 0..{self.num_rounds}.")
        for seed in self.seeds:
            if self.seeds.count(seed) > 1:
                raise UserError(f"seeds={','.join(map(str, self.seeds))}: duplicate seed {seed}; keep one.")
        if self.eval_val and not self.val_fraction:
            raise UserError("eval_val: no examples are held out for it; set --val_fraction, e.g. 0.1.")
        if self.client_optimizer != "sgd" and self.client_momentum:
            raise UserError(f"client_momentum belongs to sgd, not to {self.client_optimizer}; leave it 0.")
        if self.lr_schedule and self.lr_decay:
            raise UserError(f"lr_schedule={self.lr_schedule} and lr_decay={self.lr_decay} both set the rate; keep one.")
        if self.init_from and self.fork_from:
            raise UserError(f"init_from={self.init_from} and fork_from={self.fork_from} exclude each other; keep one.")

    def decisive(self) -> dict[str, Any]:
        """Returns the fields that decide what is computed: all but the operational ones."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if not f.metadata["operational"]}


def _integer(value):
    """Returns a number written in digits as an integer, anything else unchanged."""
    text = value.strip() if isinstance(value, str) else value
    # isdecimal admits digits of other scripts, which int would read.
    return int(text) if isinstance(text, str) and text.isascii() and text.isdecimal() and len(text) < 20 else value


def default_of(field: dataclasses.Field) -> Any:
    """Returns the default of a field of Config."""
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
