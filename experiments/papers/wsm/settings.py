"""Settings shared by the tables and figures of the re-weighted softmax (WSM): data sets, networks, losses."""

import functools

from ..items import Item, Variation
from ..measures import MeanLast
from ..trajectories import Fields
from ..wima.settings import FASHION as WIMA_FASHION

SEEDS = (0,)
SKEW = "dirichlet:alpha=0.1,prior=symmetric"
# Accuracies are printed as fractions; the mean of the last 100 rounds.
BASE = Variation(
    "wsm",
    paper=Fields.of(
        f"partition={SKEW} num_clients=100 val_fraction=0.1 algorithm=fedavg local_epochs=3 batch_size=64 "
        "client_lr=0.1 weight_decay=1e-4 num_rounds=4000 eval_every=100 final_evals=100"
    ),
    trend=Fields(eval_every=10, final_evals=30),
    printed=(("algorithm", "FedAvg"), ("metric", "test_accuracy_fraction")),
    measure=MeanLast(unit="fraction"),
)
# All tables and figures have these unless they name others.
item = functools.partial(Item, base=BASE, seeds=SEEDS)
# Fashion-MNIST stands in for CIFAR-10: two hidden layers of 200, 60 rounds of 10 of 100 clients.
FASHION = WIMA_FASHION | {"num_rounds": 60, "batch_size": 64, "client_lr": 0.1, "augment": "none"}
# The handwritten digits stand in for FEMNIST: 4 of 40 clients, each with a tenth held out.
DIGITS = Fields.of(
    "dataset=digits num_clients=40 clients_per_round=4 model=digits_mlp num_rounds=150 batch_size=10 client_lr=0.1"
)
MIXED = "resnet18:variant=wsm"
TOO_FEW = "images of CIFAR-100 are too few here to be split among 100 clients"
FEWER = "five of the nine rates fit into five minutes on two cores"
TREND_RATES = ("0.7", "0.3", "0.1", "0.03", "0.01")


def column(name: str, label: str, fields: Fields, printed: tuple[str, ...], trend: Fields | None) -> Variation:
    """Returns the column of a data set; `printed` are data set, partition and network of the printed cells."""
    keys = tuple(zip(("dataset", "partition", "model"), printed, strict=True))
    return Variation(name, label, fields, trend, absent="" if trend is not None else TOO_FEW, printed=keys)


PARTITION, MODEL = "dirichlet_sym:alpha=0.1;K=100", "ResNet-18-mixedBNGN"
COLOR = Fields(model=MIXED, augment="crop_flip")
CIFAR10_FIELDS = COLOR | {"dataset": "cifar10", "clients_per_round": 10}
CIFAR10 = column("cifar10", "CIFAR-10", CIFAR10_FIELDS, ("CIFAR-10", PARTITION, MODEL), FASHION)
# Two clients a round, as stated for this set alone.
CIFAR100 = column(
    "cifar100",
    "CIFAR-100",
    COLOR | {"dataset": "cifar100", "clients_per_round": 2},
    ("CIFAR-100", PARTITION, MODEL),
    None,
)
FEMNIST = column(
    "femnist",
    "FEMNIST",
    Fields(dataset="femnist", model=MIXED, clients_per_round=10, num_rounds=2000),
    ("FEMNIST-62", f"{PARTITION}*", MODEL),
    DIGITS,
)
VARIANTS = (
    Variation("base", "cross-entropy", printed=(("variant", "base"),)),
    Variation("wsm", "WSM", Fields(loss="wsm"), printed=(("variant", "+wsm"),)),
)


def at_rate(rate: str) -> Variation:
    """Returns the row of a learning rate."""
    name = f"lr{rate}".replace(".", "")
    absent = "" if rate in TREND_RATES else FEWER
    return Variation(
        name, f"lr {rate}", Fields(client_lr=float(rate)), absent=absent, printed=(("variant", f"lr={rate}"),)
    )


def at_alpha(alpha: float) -> Variation:
    """Returns the column of a Dirichlet parameter."""
    fields = Fields(partition=f"dirichlet:alpha={alpha:g},prior=symmetric")
    return Variation(f"alpha{alpha:g}".replace(".", ""), f"alpha = {alpha:g}", fields)


# Networks with GroupNorm or BatchNorm alone, of Table 3.3 and Figures 3.4 and 3.5. At trend scale: the rate of the
# figures, and a ResNet-18 with an eighth of its channels on the digits.
NORM_RATE = "0.05"
NORM_ROUNDS, NORM_WIDTH = 60, 8


def of_norm(norm: str, label: str) -> Variation:
    """Returns the column of a norm, 'gn' or 'bn'."""
    keys = (("dataset", "CIFAR-10"), ("partition", PARTITION), ("model", f"ResNet-18-{norm.upper()}"))
    fields = CIFAR10_FIELDS | {"model": f"resnet18:variant=wsm,norm={norm}"}
    model = f"resnet18:variant=plain,norm={norm},width={NORM_WIDTH}"
    narrow = Fields(model=model, num_rounds=NORM_ROUNDS, augment="none")
    return Variation(norm, label, fields, DIGITS | narrow, printed=keys)


NORM_COLUMNS = (of_norm("gn", "GroupNorm"), of_norm("bn", "BatchNorm"))
