"""IMA, Figure 6 (a): how unequal clients are."""

from ..items import Entry, Item
from ..trajectories import Fields
from .settings import FEW, SEEDS, TREND_SEEDS
from .sweeps import BETTER, FEDAVG, STANDIN, SWEPT, WHO, WITH_AND_WITHOUT

ALPHAS = (0.05, 0.1, 0.3, 0.5, 1.0)
# So few examples need larger shares, if everybody is to have some.
TREND_ALPHAS = {0.05: 0.08}


def _at(alpha: float) -> Entry:
    trend = Fields(partition=f"yurochkin:alpha={TREND_ALPHAS.get(alpha, alpha)}{FEW}")
    paper = Fields(partition=f"yurochkin:alpha={alpha}")
    return Entry(f"alpha{alpha:g}", f"alpha = {alpha:g}", paper, trend, x=alpha)


ITEM = Item(
    name="ima/figure6a",
    title="FedAvg with and without IMA, by the Dirichlet parameter",
    base=SWEPT,
    rows=(FEDAVG,),
    columns=tuple(_at(alpha) for alpha in ALPHAS),
    variants=WITH_AND_WITHOUT,
    draw="sweep",
    axis="Dirichlet alpha",
    seeds=SEEDS,
    trend_seeds=TREND_SEEDS,
    claims=(BETTER,),
    assumed=(WHO, f"The values of alpha are not stated: {', '.join(f'{alpha:g}' for alpha in ALPHAS)}."),
    standin=f"{STANDIN}; alpha = 0.08 in place of 0.05, with which so few images can't be dealt.",
    cost="five runs of CIFAR-10, CNN, 400 rounds, and a fork of each",
)
