"""Settings shared by the IMA paper's tables and figures: data sets, networks, methods, IMA itself."""

import dataclasses
import functools

from .. import standin
from ..items import Analysis, Override, Variation, columns, methods
from ..trajectories import Fields
from ..wima.settings import FASHION

# Mean of the last 10 rounds; the paper does not state its seeds, the released code has this one.
SEEDS = (2023,)
BASE = Variation(
    "ima",
    paper=Fields.of(
        "num_clients=100 clients_per_round=10 local_epochs=5 batch_size=50 client_lr=0.01 client_momentum=0.9 "
        "lr_decay=0.01 weight_decay=0.001 final_evals=10"
    ),
    trend=Fields(final_evals=20),
)
TEXT = standin.IN_WORDS.format("batches of 50, five local epochs, 400 rounds, as in the paper")
# All tables and figures have these unless they name others.
item = functools.partial(standin.item, base=BASE, seeds=SEEDS, cifar16=TEXT)
analysis = functools.partial(Analysis, seeds=SEEDS, cifar16=TEXT)
# The handwritten digits: 4 of 40 clients, five local epochs as in the paper, 120 rounds.
DIGITS = Fields.of(
    "dataset=digits num_clients=40 clients_per_round=4 model=digits_mlp num_rounds=120 batch_size=10 client_lr=0.05"
)
# With so few examples, a partition seldom gives each of 40 clients the default minimum of 10.
FEW = ",min_size=2"
# Fashion-MNIST stands in where a row of Table I is its own: two layers of 200, one local epoch.
SMALL_FASHION = FASHION | {"local_epochs": 1, "client_lr": 0.02}

SHARDS, DIRICHLET = "shards:per_client=2", "yurochkin:alpha=0.1"
COLUMNS = columns("ima")
FMNIST_SHARDS, FMNIST_DIRICHLET, CNN_SHARDS, CNN_DIRICHLET, RESNET_SHARDS, RESNET_DIRICHLET, *OTHERS = COLUMNS
OF_DOMAINS = tuple(column.name for column in OTHERS if "domain" in column.paper["partition"])
DEEP = tuple(column.name for column in (RESNET_SHARDS, RESNET_DIRICHLET, *OTHERS) if "digit5" not in column.name)
# A method with several alternatives was searched; the first is the released code's default.
METHODS = methods("ima")
ADAPTIVE = ("fedadam", "fedyogi")
ANCHORS = tuple(Fields(algorithm=f"fedfa:lam={lam},beta=0.9") for lam in ("0.1", "0.01", "0.001"))
# Hyper-parameters that depend on the network or on the skew.
SPECIAL = (
    Override(
        Variation("asam_deep", paper=Fields(algorithm="fedasam:rho=0.2,eta=0.05")), rows=("fedasam",), columns=DEEP
    ),
    Override(Variation("anchors_of_domains", grid=ANCHORS), rows=("fedfa",), columns=OF_DOMAINS),
)

# IMA runs are forked from the base run a twentieth of the rounds before averaging starts, so that the window is full
# then; until it starts both train the same models.
EARLIER = 0.05
START = 0.75


def averaging(name: str, label: str, *, window: int = 5, start: float = START, more: str = "", **about) -> Variation:
    """Returns a variant that averages.

    Args:
      start: share of the rounds at which averaging starts.
      more: further parameters of the wrapper, with a comma before them.
    """
    wrap = Fields(wrap=[f"ima:window={window},start={start}{more}"])
    return Variation(name, label, wrap, fork=round(start - EARLIER, 6), **about)


def before_adaptive_servers(variants: tuple[Variation, ...]) -> tuple[Override, ...]:
    """Returns the overrides with which FedAdam and FedYogi average before the server's optimizer."""
    return tuple(
        Override(
            dataclasses.replace(
                variant, name=f"{variant.name}_pre", paper=Fields(wrap=[f"{variant.paper['wrap'][0]},placement=pre"])
            ),
            rows=ADAPTIVE,
            variants=(variant.name,),
        )
        for variant in variants
        if variant.fork is not None
    )


FEDAVG = Variation("fedavg", "FedAvg", Fields(algorithm="fedavg"))
# The plain runs of Figures 1, 5 and 9: two shards per client, no decay of the rate.
PLAIN = Variation("plain", paper=BASE.paper | CNN_SHARDS.paper, trend=standin.fields("shards")).merged(lr_decay=0.0)
# The sweeps of Figures 6 and 7: CIFAR-10 with Dirichlet shares and the CNN, as in Tables II and III.
SWEPT = Variation("swept", paper=BASE.paper | CNN_DIRICHLET.paper, trend=standin.fields("yurochkin"))
