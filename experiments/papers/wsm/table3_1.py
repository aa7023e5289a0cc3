"""WSM, Table 3.1: nine learning rates with and without WSM, three data sets."""

from ..claims import Claim
from ..items import Item
from .settings import ASSUMED, BASE, CIFAR10, CIFAR100, FEMNIST, SEEDS, STANDIN, TREND_SEEDS, VARIANTS, at_rate

RATES = ("0.7", "0.5", "0.3", "0.1", "0.07", "0.05", "0.03", "0.01", "0.007")

ITEM = Item(
    name="wsm/table3_1",
    title="FedAvg with and without WSM at nine learning rates, ResNet-18 with BatchNorm and GroupNorm",
    base=BASE,
    rows=tuple(at_rate(rate) for rate in RATES),
    columns=(CIFAR10, CIFAR100, FEMNIST),
    variants=VARIANTS,
    table=("wsm", "3.1"),
    seeds=SEEDS,
    trend_seeds=TREND_SEEDS,
    claims=(Claim("WSM is more accurate than cross-entropy.", (("variant", "wsm"),), (("variant", "base"),)),),
    assumed=(
        *ASSUMED,
        "FEMNIST has its 62 classes, one channel, 100 clients by Dirichlet shares, and 2,000 rounds.",
    ),
    standin=f"CIFAR-10: {STANDIN}; FEMNIST: digits, a hidden layer of 64, 4 of 40 clients, 150 rounds; five rates.",
    cost="54 runs of 4,000 rounds (FEMNIST 2,000) of ResNet-18: for a GPU",
)
