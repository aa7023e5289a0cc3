"""What a run is told: the flags of `experiments.train` as one frozen dataclass, with their checks."""

import dataclasses
from typing import Any

from fedwin.errors import UserError
from fedwin.registry import nearest


def option(default, help: str, *, operational: bool = False):
    """One field of Config: its default, its help line, and whether a resumed run may change it."""
    metadata = {"help": help, "operational": operational}
    if isinstance(default, list):
        return dataclasses.field(default_factory=lambda: list(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True)
class Config:
    """Everything that decides what a run computes, and where it writes.

    A choice with parameters is written `name:key=value,key=value`.
    """

    dataset: str = option("digits", "Data set, e.g. digits, cifar10, cifar100:label=coarse, mnist, fmnist.")
    data_dir: str = option("", "Folder with the data set's files; built-in data needs none.", operational=True)
    partition: str = option(
        "",
        "How examples are dealt to clients: iid, shards:per_client=2, dirichlet:alpha=0, csv:path=FILE, natural ...; empty: the data set's own clients, else iid.",
    )
    num_clients: int = option(0, "Clients K of the federation; 0: the data set's own or the split file's, else 100.")
    model: str = option("cnn", "Network: mlp, cnn, lenet5, mcmahan_cnn, emnist_cnn, resnet20 ...")
    algorithm: str = option("fedavg", "Method, e.g. fedavg, fedprox:mu=0.1, scaffold; --list_algorithms prints all.")
    wrap: list[str] = option(
        [],
        "Wrapper that changes training, e.g. ima:window=5,start=0.75, swa:cycle=10, clip:norm=1 or local_bn; repeats.",
    )
    observe: list[str] = option(
        [], "Read-out that leaves training alone, e.g. wima:window=100, swa:start=0.75,cycle=10, ema; repeats."
    )
    num_rounds: int = option(400, "Rounds T.")
    clients_per_round: int = option(10, "Clients that take part in a round.")
    loss: str = option("cross_entropy", "Local loss: cross_entropy, wsm, wsm:proportions=train.")
    augment: str = option(
        "none",
        "Train-time augmentation per image: none, flip, crop_flip:padding=4, crop_flip:size=224 (at random from larger images, centrally in evaluation).",
    )
    local_epochs: int = option(1, "Local epochs E.")
    batch_size: int = option(32, "Local batch size B.")
    batching: str = option(
        "epoch", "epoch: E*ceil(N/B) steps, last batch short; repeat: FedJAX's ceil(E*N/B) full batches."
    )
    shuffle: bool = option(True, "Shuffle the local examples in every local epoch.")
    client_optimizer: str = option("sgd", "Local optimiser from optax: sgd, adam, adamw, adagrad, rmsprop, yogi.")
    client_lr: float = option(0.1, "Local learning rate.")
    client_momentum: float = option(0.0, "Local momentum of sgd, fresh in every round.")
    weight_decay: float = option(0.0, "Weight decay lambda of the local steps.")
    wd_in_loss: bool = option(False, "Put weight decay into the loss (FedJAX) instead of the step (PyTorch).")
    clip_norm: float = option(0.0, "Clip the local direction to this global norm; 0: no clipping.")
    lr_decay: float = option(0.0, "Decay of the local rate per round: lr * (1 - lr_decay)^round.")
    server_lr: float = option(0.0, "Server learning rate of the algorithm; 0: the algorithm's default.")
    weighting: str = option("", "Aggregation weights: samples or uniform; empty: the algorithm's default.")
    val_fraction: float = option(0.0, "Share of every client's examples that is held out for validation.")
    precision: str = option(
        "float32", "float32 (true float32 products), tf32 (the device's fast default), bfloat16 (compute), float64."
    )
    seeds: list[str] = option(["0"], "Random seeds, one run each: 0,1,2.")
    partition_seed: int = option(-1, "Seed of the partition; -1: the run's own seed.")
    eval_every: int = option(10, "Rounds between evaluations.")
    final_evals: int = option(100, "The last N rounds are all evaluated; their mean is reported.")
    eval_batch_size: int = option(500, "Test examples per evaluation step.")
    strategy: str = option(
        "default",
        "How a cohort is executed: default (a measured table), auto (times them), vmapped, chunked:k=4, sharded:devices=2; pmap is another word for sharded: jit + shard_map over a clients axis is what pmap is today.",
    )
    table: str = option("auto", "Where per-client state lives: device, host, auto.", operational=True)
    examples: str = option(
        "auto", "Where training examples live: device, stream (read for each dispatch), auto.", operational=True
    )
    eval_examples: int = option(
        0, "Evaluate on this many test examples, drawn once with the run's seeds left aside; 0: all."
    )
    out_dir: str = option("", "Directory of the run; empty: runs/<dataset>_<algorithm>.", operational=True)
    checkpoint_every: int = option(
        100, "Rounds between checkpoints; 0: only at the start and the end.", operational=True
    )
    keep_checkpoints: int = option(3, "Checkpoints that are kept.", operational=True)
    rounds_per_dispatch: int = option(50, "The most rounds of one dispatch to the device.")
    stop_on_divergence: bool = option(True, "End a seed at the first NaN or inf; it is recorded either way.")
    fork_from: str = option("", "Start from another run's checkpoint: DIR@ROUND.")

    @property
    def seed_list(self) -> tuple[int, ...]:
        return tuple(int(s) for s in self.seeds)

    def check(self) -> None:
        """Raises UserError for a number out of range; names are checked where they are built."""

        def need(good: bool, text: str) -> None:
            if not good:
                raise UserError(text)

        need(bool(self.seeds), "seeds: give at least one, e.g. --seeds=0,1,2.")
        for seed in self.seeds:
            need(
                str(seed).strip().isdigit() and int(seed) < 2**31,
                f"seeds: '{seed}' is not an integer in 0..2147483647.",
            )
        need(
            len(set(self.seed_list)) == len(self.seeds), f"seeds={','.join(self.seeds)}: a seed stands twice; keep one."
        )
        for name in (
            "num_rounds",
            "clients_per_round",
            "local_epochs",
            "batch_size",
            "eval_every",
            "eval_batch_size",
            "keep_checkpoints",
            "rounds_per_dispatch",
        ):
            need(getattr(self, name) >= 1, f"{name}={getattr(self, name)} must be at least 1.")
        for name in (
            "num_clients",
            "eval_examples",
            "final_evals",
            "checkpoint_every",
            "client_momentum",
            "weight_decay",
            "clip_norm",
            "server_lr",
        ):
            need(getattr(self, name) >= 0, f"{name}={getattr(self, name)} must not be negative.")
        need(self.client_lr >= 0, f"client_lr={self.client_lr} must not be negative.")
        need(self.client_momentum < 1, f"client_momentum={self.client_momentum} must lie in [0, 1).")
        need(0 <= self.lr_decay < 1, f"lr_decay={self.lr_decay} must lie in [0, 1).")
        need(0 <= self.val_fraction < 1, f"val_fraction={self.val_fraction} must lie in [0, 1).")
        need(
            self.partition_seed >= -1,
            f"partition_seed={self.partition_seed} must be -1 (the run's seed) or a seed >= 0.",
        )
        one_of("batching", self.batching, ("epoch", "repeat"))
        one_of("weighting", self.weighting, ("", "samples", "uniform"))
        one_of("precision", self.precision, ("float32", "tf32", "bfloat16", "float64"))
        one_of("examples", self.examples, ("auto", "device", "stream"))
        one_of("table", self.table, ("auto", "device", "host"))
        one_of("client_optimizer", self.client_optimizer, OPTIMIZERS)
        need(
            self.client_optimizer == "sgd" or self.client_momentum == 0,
            f"client_momentum belongs to sgd, not to {self.client_optimizer}; leave it 0.",
        )

    def decisive(self) -> dict[str, Any]:
        """Returns the fields that decide what is computed: all but the operational ones."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if not f.metadata["operational"]}


def one_of(name: str, value: str, known) -> None:
    """Raises UserError unless `value` is one of the known words, with the nearest match."""
    if value not in known:
        words = ", ".join(repr(k) if not k else k for k in known)
        raise UserError(f"{name}='{value}' is unknown.{nearest(value, known)} Known: {words}.")


OPTIMIZERS = ("sgd", "adam", "adamw", "adagrad", "rmsprop", "yogi")


def client_optimizer(config: Config):
    """Returns (optax transformation at unit learning rate, weight decay that is left to the local solver).

    adamw decays weights itself, apart from its moments; every other optimiser sees lambda y as part of the direction.
    """
    import optax

    if config.client_optimizer == "sgd":
        return optax.sgd(1.0, config.client_momentum or None), config.weight_decay
    if config.client_optimizer == "adamw":
        own = 0.0 if config.wd_in_loss else config.weight_decay
        return optax.adamw(1.0, weight_decay=own), config.weight_decay - own
    return getattr(optax, config.client_optimizer)(1.0), config.weight_decay
