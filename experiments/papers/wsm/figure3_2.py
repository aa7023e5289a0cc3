"""WSM, Figure 3.2: curves at the best learning rate of Table 3.1."""

from ..claims import Claim
from ..items import Entry, Item, Override
from ..trajectories import Fields
from .settings import ASSUMED, BASE, CIFAR10, CIFAR100, FEMNIST, SEEDS, STANDIN, TREND_SEEDS, VARIANTS

# Column and loss -> the best rate as printed in Table 3.1, and that at trend scale.
BEST = {
    ("cifar10", "base"): (0.07, 0.1),
    ("cifar10", "wsm"): (0.1, 0.1),
    ("cifar100", "base"): (0.03, 0.1),
    ("cifar100", "wsm"): (0.07, 0.1),
    ("femnist", "base"): (0.01, 0.3),
    ("femnist", "wsm"): (0.03, 0.3),
}

ITEM = Item(
    name="wsm/figure3_2",
    title="Accuracy over rounds with and without WSM, each at its best learning rate",
    base=BASE,
    rows=(Entry("fedavg", "FedAvg"),),
    columns=(CIFAR10, CIFAR100, FEMNIST),
    variants=VARIANTS,
    overrides=tuple(
        Override(
            Entry(f"best_{column}_{variant}", paper=Fields(client_lr=rate), trend=Fields(client_lr=trend)),
            columns=(column,),
            variants=(variant,),
        )
        for (column, variant), (rate, trend) in BEST.items()
    ),
    draw="curves",
    seeds=SEEDS,
    trend_seeds=TREND_SEEDS,
    claims=(Claim("WSM ends above cross-entropy.", (("variant", "wsm"),), (("variant", "base"),)),),
    assumed=ASSUMED,
    standin=f"CIFAR-10: {STANDIN}; FEMNIST: digits, a hidden layer of 64, 4 of 40 clients, 150 rounds.",
    cost="read off Table 3.1's runs",
)
