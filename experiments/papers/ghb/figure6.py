"""GHB, Figure 6: FedHBM with four momenta."""

from ..claims import AT_LEAST, Claim
from ..items import Entry, Item
from ..trajectories import Fields
from .settings import BASE, LENET_SILO, SEEDS, TREND_SEEDS

BETAS = ("0", "0.9", "0.99", "1")


def _row(beta: str) -> Entry:
    return Entry(f"beta{beta}".replace(".", ""), f"beta = {beta}", Fields(algorithm=f"fedhbm:beta={beta}"))


ITEM = Item(
    name="ghb/figure6",
    title="FedHBM with beta = 0, 0.9, 0.99 and 1, one class per client",
    base=BASE,
    rows=tuple(_row(beta) for beta in BETAS),
    columns=(LENET_SILO[0], LENET_SILO[2]),
    draw="curves",
    seeds=SEEDS,
    trend_seeds=TREND_SEEDS,
    claims=(
        Claim(
            "beta = 1 is at least as good as beta = 0.9.",
            (("row", "beta1"), ("column", "cifar10_noniid")),
            (("row", "beta09"), ("column", "cifar10_noniid")),
            by=AT_LEAST,
        ),
        Claim(
            "Momentum is better than none.",
            (("row", "beta1"), ("column", "cifar10_noniid")),
            (("row", "beta0"), ("column", "cifar10_noniid")),
        ),
    ),
    assumed=("The network is not stated: LeNet-5, cross-silo.",),
    standin="Digits, a hidden layer of 64, and Fashion-MNIST, two layers of 200, in place of the CIFAR sets.",
    cost="three runs beside Table 3's FedHBM on two data sets, 5 seeds: for a GPU",
)
