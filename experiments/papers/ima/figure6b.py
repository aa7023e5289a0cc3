"""IMA, Figure 6 (b): how many clients take part."""

from ..items import Entry, Item
from ..trajectories import Fields
from .settings import SEEDS, TREND_SEEDS
from .sweeps import BETTER, FEDAVG, STANDIN, SWEPT, WHO, WITH_AND_WITHOUT

SHARES = (0.1, 0.2, 0.3, 0.4, 0.5)
# Clients at paper and at trend scale.
CLIENTS, TREND_CLIENTS = 100, 40


def _at(share: float) -> Entry:
    paper = Fields(clients_per_round=round(share * CLIENTS))
    trend = Fields(clients_per_round=round(share * TREND_CLIENTS))
    return Entry(f"share{round(100 * share)}", f"{share:.0%}", paper, trend, x=share)


ITEM = Item(
    name="ima/figure6b",
    title="FedAvg with and without IMA, by the share of clients that take part",
    base=SWEPT,
    rows=(FEDAVG,),
    columns=tuple(_at(share) for share in SHARES),
    variants=WITH_AND_WITHOUT,
    draw="sweep",
    axis="share of clients per round",
    seeds=SEEDS,
    trend_seeds=TREND_SEEDS,
    claims=(BETTER,),
    assumed=(WHO, f"The shares are not stated: {', '.join(f'{share:g}' for share in SHARES)}."),
    standin=f"{STANDIN}.",
    cost="five runs of CIFAR-10, CNN, 400 rounds of 10 to 50 clients, and a fork of each",
)
