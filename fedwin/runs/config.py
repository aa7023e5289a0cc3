"""Config: all settings of a run, with types, ranges and help texts; the flags of `fedwin train` are its fields."""

import dataclasses
from collections.abc import Iterator
from typing import Annotated, Any, Literal, get_args

import numpy as np

from fedwin.errors import UserError
from fedwin.registry import nearest
from fedwin.registry.ranges import Decay, NonNegative, NonNegativeInt, PositiveInt, Range, check_value

# Counts are int32 on the device.
MOST = 2**31 - 1

# Fields that are lists of integers.
INTEGER_LISTS = ("seeds", "keep_rounds")

Optimizer = Literal["sgd", "adam", "adamw", "adagrad", "rmsprop", "yogi", "muon"]


def option(default: object, help: str, *, operational: bool = False):
    """Returns a field of Config, whose annotation has its range; a resumed run may change `operational` ones."""
    metadata = {"help": help, "operational": operational}
    if isinstance(default, list):
        return dataclasses.field(default_factory=lambda: list(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataOptions:
    """The data set and its partition among clients."""

    dataset: str = option("digits", "Data set: digits, cifar10, cifar100:label=coarse, mnist, fmnist ...")
    data_dir: str = option("", "Folder of the data set's files; not needed for built-in data.", operational=True)
    partition: str = option(
        "",
        "Partition of the examples among clients: iid, shards:per_client=2, dirichlet:alpha=0, csv:path=FILE, natural "
        "...; empty: the data set's own clients, otherwise iid.",
    )
    num_clients: NonNegativeInt = option(
        0, "Number of clients K; 0: as in the data set or the partition file, otherwise 100."
    )
    partition_seed: Annotated[int, Range(-1)] = option(-1, "Seed of the partition; -1: the run's own seed.")
    imbalance: Annotated[float, Range(1)] = option(
        1.0, "Long tail of classes before the partition: ratio of the largest class to the smallest."
    )
    client_shift: str = option(
        "",
        "Shift of each client's inputs: noise:std=0.5,levels=rising, rotation:degrees=45, color:strength=0.5, "
        "blur:radius=2; empty: none.",
    )
    drift: str = option(
        "",
        "Change of all data at a round: swap:round=100,classes=2 (labels), rotate:round=100,degrees=45,rounds=50; "
        "empty: none.",
    )
    val_fraction: Decay = option(0.0, "Fraction of every client's examples that is held out for validation.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """The network, its loss and precision, and the parameters that it starts from."""

    model: str = option("cnn", "Network: mlp, cnn, lenet5, mcmahan_cnn, emnist_cnn, resnet20 ...")
    lora: str = option(
        "",
        "Train only low-rank corrections of the layers of --init_from's model: rank=4,part=features|all|NAMES.",
    )
    loss: str = option(
        "cross_entropy",
        "Local loss: cross_entropy, wsm, wsm:proportions=train; for continuous labels mse, huber:delta=1.",
    )
    augment: str = option(
        "none", "Augmentation of training images: none, flip, crop_flip:padding=4, crop_flip:size=224."
    )
    precision: Literal["float32", "tf32", "bfloat16", "float64"] = option(
        "float32",
        "float32 (exact float32 products), tf32 (the device's fast default), bfloat16 (for computation), float64.",
    )
    init_from: str = option(
        "", "Start round 0 with the parameters of a run or file: DIR@ROUND:part=features, model.npz, model.pt:map=FILE."
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """The algorithm, its wrappers, and what the server does with the clients' steps."""

    algorithm: str = option("fedavg", "Method, e.g. fedavg, fedprox:mu=0.1, scaffold.")
    wrap: list[str] = option(
        [],
        "Wrapper that changes training: ima:window=5,start=0.75, swa:cycle=10, clip:norm=1, quantize:bits=8, "
        "dp:clip=1,noise=1; repeatable.",
    )
    server_lr: NonNegative = option(0.0, "Server learning rate; 0: the algorithm's default.")
    weighting: Literal["", "samples", "uniform"] = option(
        "", "Aggregation weights: samples or uniform; empty: the algorithm's default."
    )
    aggregate: str = option(
        "mean",
        "How the server combines the clients' steps: mean, median, trimmed_mean:share=0.1, krum:f=2, krum:f=2,m=3, "
        "geometric_median.",
    )
    attack: str = option(
        "none",
        "What attackers do, and how many of all clients attack: none, sign_flip:clients=0.2, gaussian:std=1, "
        "label_flip:clients=10, backdoor:clients=0.1.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ParticipationOptions:
    """Rounds, and the clients that take part in them."""

    num_rounds: PositiveInt = option(400, "Number of rounds T.")
    clients_per_round: PositiveInt = option(10, "Number of clients that take part in a round.")
    sampling: str = option(
        "uniform",
        "Which clients take part in a round: uniform, weighted, poisson:rate=0.1, cyclic, markov:up=0.1,down=0.1, "
        "diurnal:period=24, file:path=FILE.",
    )
    dropout: Decay = option(0.0, "Probability that a drawn client does not answer.")
    asynchronous: str = option(
        "",
        "Asynchronous server, timed by the --clock; a round is one server step: buffer:size=10,concurrency=50, "
        "buffer:size=1,concurrency=10,mixing=0.6; empty: none.",
    )
    over_selection: Annotated[float, Range(1)] = option(
        1.0, "Draw this many times the clients that take part; the first to arrive by the --clock do."
    )
    deadline: NonNegative = option(0.0, "Seconds of the --clock after which a round excludes late clients; 0: none.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class LocalOptions:
    """What a client computes in a round."""

    local_epochs: NonNegative = option(1.0, "Number of local epochs E, such as 5 or 0.5.")
    local_steps: NonNegativeInt = option(
        0, "Number of local steps H of every client, in place of --local_epochs; 0: off."
    )
    local_work: str = option(
        "",
        "Share of the local steps that each client takes: uniform:low=0.2,high=1, stragglers:share=0.5, "
        "file:path=FILE; empty: all.",
    )
    batch_size: PositiveInt = option(32, "Local batch size B.")
    batching: Literal["epoch", "repeat"] = option(
        "epoch", "epoch: E*ceil(N/B) steps, smaller last batch; repeat: ceil(E*N/B) full ones, as in FedJAX."
    )
    shuffle: bool = option(True, "Shuffle the local examples in every local epoch.")
    client_optimizer: Optimizer = option("sgd", f"Local optimizer from optax: {', '.join(get_args(Optimizer))}.")
    client_lr: NonNegative = option(0.1, "Local learning rate.")
    client_momentum: Decay = option(0.0, "Local momentum of sgd, reset in every round.")
    lr_decay: Decay = option(0.0, "Decay of the local learning rate per round: lr * (1 - lr_decay)^round.")
    lr_schedule: Literal["", "cosine", "wsd"] = option(
        "",
        "Schedule of the local learning rate: cosine: lr * (1 + cos(pi * round / num_rounds)) / 2; wsd: constant, "
        "then linear to 0 over the last fifth of the rounds; empty: none.",
    )
    lr_warmup: Decay = option(0.0, "Share of the rounds over which the local learning rate first rises linearly.")
    weight_decay: NonNegative = option(0.0, "Weight decay lambda of the local steps.")
    wd_in_loss: bool = option(
        False, "Apply weight decay in the loss, as FedJAX does, not in the step, as PyTorch does."
    )
    clip_norm: NonNegative = option(0.0, "Clip the direction of local steps to this global norm; 0: no clipping.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluationOptions:
    """Read-outs, and when and on which examples they are evaluated."""

    observe: list[str] = option(
        [],
        "Observer that evaluates averages and does not change training: wima:window=100, swa:start=0.75,cycle=10, ema; "
        "repeatable.",
    )
    eval_every: PositiveInt = option(10, "Number of rounds between evaluations.")
    final_evals: Annotated[int, Range(-1)] = option(
        -1, "Evaluate after each of the last N rounds and report the mean; -1: a quarter of the rounds, from 1 to 100."
    )
    eval_examples: NonNegativeInt = option(0, "Number of test examples for evaluation, a fixed random subset; 0: all.")
    eval_batch_size: PositiveInt = option(500, "Number of test examples per evaluation step.")
    eval_val: bool = option(
        False, "Also evaluate on the examples that --val_fraction holds out: val_accuracy, val_loss."
    )
    eval_clients: str = option(
        "", "Evaluate read-outs on each client's own examples: all, or a number of clients; empty: off."
    )
    eval_clients_every: NonNegativeInt = option(0, "Rounds between evaluations of clients; 0: only after the last.")
    personalize: list[str] = option(
        [], "Also evaluate clients after personalization: finetune:epochs=1, finetune:part=classifier; repeatable."
    )
    clock: str = option(
        "",
        "Simulated clock, in bytes/s and seconds per local step: bandwidth:up=1e6,down=1e7,compute=0.01, "
        "file:path=FILE; empty: none.",
    )
    early_stopping: str = option(
        "",
        "Rule that ends a seed early: patience:rounds=50,min_delta=0.001, target:value=0.9 (of val_accuracy, see "
        "--eval_val, or of metric=...,read_out=...); empty: none.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExecutionOptions:
    """Seeds, devices and memory, and the run that this one continues."""

    seeds: list[int] = option([0], "Random seeds, one run each: 0,1,2.")
    seeds_at_once: PositiveInt = option(
        1,
        "Number of seeds that train vmapped in one compiled program, for small models on accelerators; 1: one seed "
        "after another. Results differ from those of 1 by rounding.",
    )
    strategy: str = option(
        "default",
        "How a cohort is executed: default (vmapped; a loop on a CPU), auto (the fastest in a test), vmapped, "
        "chunked:k=4, sharded:devices=2; pmap is an alias of sharded.",
    )
    table: Literal["auto", "device", "host", "file"] = option(
        "auto", "Where client states are stored: device, host, file (those that took part), auto.", operational=True
    )
    window: Literal["auto", "device", "host", "file"] = option(
        "auto",
        "Where windows, delays and old models of asynchronous servers are: device, host, file, auto.",
        operational=True,
    )
    examples: Literal["auto", "device", "stream"] = option(
        "auto", "Where training examples are stored: device, stream (read for every dispatch), auto.", operational=True
    )
    rounds_per_dispatch: PositiveInt = option(
        50, "Maximum number of rounds that one call of the compiled program (dispatch) computes."
    )
    stop_on_divergence: bool = option(True, "End a seed at the first NaN or inf, which is recorded in any case.")
    fork_from: str = option("", "Continue from another run's checkpoint, with its state and round: DIR@ROUND.")
    imports: list[str] = option(
        [], "Module or .py file that registers algorithms, models ... (flag --import); repeatable."
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """Directory, checkpoints and trackers of the run."""

    out_dir: str = option(
        "", "Directory of the run, or of all runs of a comparison or sweep; empty: one below runs/.", operational=True
    )
    track: list[str] = option(
        [],
        "Experiment tracker: wandb:project=NAME, trackio:project=NAME, mlflow:experiment=NAME,uri=...; repeatable.",
        operational=True,
    )
    checkpoint_every: NonNegativeInt = option(
        100, "Number of rounds between checkpoints; 0: only at the start and the end.", operational=True
    )
    keep_checkpoints: PositiveInt = option(3, "Number of newest checkpoints to keep.", operational=True)
    keep_rounds: list[int] = option(
        [], "Rounds whose checkpoints are also kept, for --fork_from: 75,150.", operational=True
    )


# Heading in --help -> the group of flags.
GROUPS = {
    "data": DataOptions,
    "model": ModelOptions,
    "method": ServerOptions,
    "participation": ParticipationOptions,
    "local training": LocalOptions,
    "evaluation": EvaluationOptions,
    "execution": ExecutionOptions,
    "output": OutputOptions,
}


# Fields are in the reverse order of the bases.
@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(
    OutputOptions,
    ExecutionOptions,
    EvaluationOptions,
    LocalOptions,
    ParticipationOptions,
    ServerOptions,
    ModelOptions,
    DataOptions,
):
    """All settings of a run.

    A choice with parameters is written `name:key=value,key=value`.
    """

    def __new__(cls, *args, **values):
        if unknown := values.keys() - cls.__dataclass_fields__:
            name = min(unknown)
            raise UserError(f"Config has no field '{name}'.{nearest(name, cls.__dataclass_fields__)}")
        return super().__new__(cls)

    def __post_init__(self):
        for field in dataclasses.fields(self):
            object.__setattr__(self, field.name, stored(field, getattr(self, field.name)))

    def check(self) -> None:
        """Raises UserError for a field of a wrong type or out of range; choices are checked when they are built."""
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if not isinstance(default_of(field), list):
                check_value(field.name, field.type, value)
            elif not isinstance(value, list):
                raise UserError(f"{field.name}={value!r} must be a list.")
            elif field.name not in INTEGER_LISTS and not all(isinstance(item, str) for item in value):
                raise UserError(f"{field.name}={value!r} must be a list of strings.")
        for seed in self.seeds:
            if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= MOST:
                raise UserError(f"seeds: '{seed}' is not an integer in 0..{MOST}.")
            if self.seeds.count(seed) > 1:
                raise UserError(f"seeds={','.join(map(str, self.seeds))}: duplicate seed {seed}; keep one.")
        for round in self.keep_rounds:
            if isinstance(round, bool) or not isinstance(round, int) or not 0 <= round <= self.num_rounds:
                raise UserError(f"keep_rounds: '{round}' is not a round in 0..{self.num_rounds}.")
        for message in self._conflicts():
            raise UserError(message)

    def _conflicts(self) -> Iterator[str]:
        """Yields a message for every pair of fields that do not go together."""
        if not self.seeds:
            yield "seeds: give at least one, e.g. --seeds=0,1,2."
        if not self.local_epochs:
            yield "local_epochs=0 must be greater than 0."
        if self.local_steps and self.local_epochs != 1:
            yield f"local_steps={self.local_steps} and local_epochs={self.local_epochs} both set the steps; keep one."
        if self.eval_val and not self.val_fraction:
            yield "eval_val: no examples are held out for validation; set --val_fraction, e.g. 0.1."
        if not self.eval_clients and (self.eval_clients_every or self.personalize):
            flag = "personalize" if self.personalize else "eval_clients_every"
            yield f"{flag} belongs to the evaluation of clients; set --eval_clients=all, or leave it out."
        if self.eval_clients and self.early_stopping and not self.eval_clients_every:
            yield "eval_clients: --early_stopping makes the last round unknown; set --eval_clients_every."
        if self.client_optimizer != "sgd" and self.client_momentum:
            yield f"client_momentum belongs to sgd, not to {self.client_optimizer}; leave it 0."
        if self.lr_schedule and self.lr_decay:
            yield f"lr_schedule={self.lr_schedule} and lr_decay={self.lr_decay} both set the rate; keep one."
        if self.asynchronous and (self.over_selection > 1 or self.deadline):
            flag = "over_selection" if self.over_selection > 1 else "deadline"
            yield f"{flag} and asynchronous exclude each other: an asynchronous server waits for nobody; keep one."
        if self.lora and not self.init_from:
            yield f"lora={self.lora} adapts a pretrained model; name it with --init_from, e.g. runs/a@100."
        if self.init_from and self.fork_from and not self.lora:
            yield f"init_from={self.init_from} and fork_from={self.fork_from} exclude each other; keep one."

    def resolved(self) -> "Config":
        """Returns the config with the number of final evaluations that -1 stands for: T // 4, from 1 to 100."""
        if self.final_evals != -1:
            return self
        return dataclasses.replace(self, final_evals=min(100, max(1, self.num_rounds // 4)))

    def decisive(self) -> dict[str, Any]:
        """Returns the fields that affect results, resolved, JSON data: all but the operational ones."""
        config = self.resolved()
        return {f.name: getattr(config, f.name) for f in dataclasses.fields(self) if not f.metadata["operational"]}


def stored(field: dataclasses.Field, value: Any) -> Any:
    """Returns a value as Config stores it in a field: equal values have equal hashes."""
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, (list, tuple)):  # a list that nobody else changes
        return [_integer(item) if field.name in INTEGER_LISTS else item for item in value]
    if field.name == "local_epochs":  # a whole number is stored as an integer
        return int(value) if isinstance(value, float) and value.is_integer() else value
    return float(value) if type(field.default) is float and type(value) is int and abs(value) <= MOST else value


def _integer(value: Any) -> object:
    """Returns a string of digits, or a numpy integer, as a Python int; anything else unchanged."""
    text = value.strip() if isinstance(value, str) else value
    # isdecimal accepts digits of other scripts, which int would read, too.
    is_number = isinstance(text, str) and text.isascii() and text.isdecimal() and len(text) < 20
    return int(value) if is_number or isinstance(value, np.integer) else value


def default_of(field: dataclasses.Field) -> Any:
    """Returns the default of a field of Config."""
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
