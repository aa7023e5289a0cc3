"""WIMA, Figure 3: fewer clients with a window against more clients without."""

import dataclasses

from ..claims import AT_LEAST, Claim
from ..items import Entry, Item
from ..trajectories import Fields
from .settings import BASE, CIFAR10_0, CIFAR10_005, TREND_WINDOW, WINDOW

CLIENTS = (10, 15, 20, 50)


def _at(alpha: Entry, clients: int) -> Entry:
    more = Fields(clients_per_round=clients)
    return dataclasses.replace(
        alpha,
        name=f"{alpha.name}_m{clients}",
        label=f"{alpha.label}, m = {clients}",
        paper=alpha.paper | more,
        trend=(alpha.trend or Fields()) | more,
        x=float(clients),
        group=alpha.label,
    )


ITEM = Item(
    name="wima/figure3",
    title="FedAvg with more clients a round against WIMA with fewer",
    base=BASE,
    rows=(Entry("fedavg", "FedAvg", Fields(algorithm="fedavg", batch_size=20), Fields()),),
    columns=tuple(_at(alpha, clients) for alpha in (CIFAR10_0, CIFAR10_005) for clients in CLIENTS),
    variants=(Entry("base", "model"), Entry("wima", "WIMA", read=WINDOW, trend_read=TREND_WINDOW)),
    draw="sweep",
    axis="clients per round",
    trend_seeds=(0, 1, 2),
    claims=(
        Claim(
            "alpha = 0: WIMA with 10 clients is at least as good as FedAvg with 15.",
            (("column", "cifar10_alpha0_m10"), ("variant", "wima")),
            (("column", "cifar10_alpha0_m15"), ("variant", "base")),
            by=AT_LEAST,
        ),
        Claim(
            "alpha = 0.05: WIMA with 10 clients is at least as good as FedAvg with 20.",
            (("column", "cifar10_alpha005_m10"), ("variant", "wima")),
            (("column", "cifar10_alpha005_m20"), ("variant", "base")),
            by=AT_LEAST,
        ),
        Claim(
            "alpha = 0.05: WIMA with 20 clients is better than FedAvg with 50.",
            (("column", "cifar10_alpha005_m20"), ("variant", "wima")),
            (("column", "cifar10_alpha005_m50"), ("variant", "base")),
        ),
    ),
    standin="Digits, a hidden layer of 64, 150 rounds, W = 20.",
    cost="3 seeds x 10,000 rounds of 10 to 50 clients of ResNet-20: for a GPU",
)
