"""WSM, Figure 3.2: curves at the best learning rate of Table 3.1."""

from ..items import Claim, Entry, Item, Override
from ..trajectories import Fields
from .settings import ASSUMED, BASE, CIFAR10, CIFAR100, FEMNIST, SEEDS, STANDIN, TREND_SEEDS, VARIANTS

# The best rate of each column and loss as printed in Table 3.1.
BEST = {
    ("cifar10", "base"): 0.07,
    ("cifar10", "wsm"): 0.1,
    ("cifar100", "base"): 0.03,
    ("cifar100", "wsm"): 0.07,
    ("femnist", "base"): 0.01,
    ("femnist", "wsm"): 0.03,
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
            Entry(f"best_{column}_{variant}", paper=Fields(client_lr=rate), trend=Fields(client_lr=0.3)),
            columns=(column,),
            variants=(variant,),
        )
        for (column, variant), rate in BEST.items()
    ),
    draw="curves",
    seeds=SEEDS,
    trend_seeds=TREND_SEEDS,
    claims=(Claim("WSM ends above cross-entropy.", (("variant", "wsm"),), (("variant", "base"),)),),
    assumed=ASSUMED,
    standin=f"CIFAR-10: {STANDIN}, rate 0.3; the others: nothing.",
    cost="read off Table 3.1's runs",
)
