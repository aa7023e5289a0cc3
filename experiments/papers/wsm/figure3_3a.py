"""WSM, Figure 3.3: how unequal clients are."""

from ..items import Entry
from ..trajectories import Fields
from .sweeps import FEWER, sweep

ALPHAS = (0.01, 0.1, 0.2, 0.5, 1, 10, 100)
TREND_ALPHAS = (0.01, 0.1, 0.5, 10)


def _at(alpha: float) -> Entry:
    fields = Fields(partition=f"dirichlet:alpha={alpha:g},prior=symmetric")
    return Entry(
        f"alpha{alpha:g}".replace(".", ""),
        f"alpha = {alpha:g}",
        fields,
        absent="" if alpha in TREND_ALPHAS else FEWER,
        x=float(alpha),
    )


ITEM = sweep(
    "wsm/figure3_3a",
    "FedAvg with and without WSM, by the Dirichlet parameter, CIFAR-10",
    "Dirichlet alpha",
    tuple(_at(alpha) for alpha in ALPHAS),
)
