"""WSM, Figure 3.3: how many clients take part."""

from ..items import Entry
from ..trajectories import Fields
from .sweeps import sweep

SHARES = (0.01, 0.05, 0.1, 0.2, 0.4, 0.6)
CLIENTS, TREND_CLIENTS = 100, 40


def _at(share: float) -> Entry:
    paper, trend = (Fields(clients_per_round=max(round(share * count), 1)) for count in (CLIENTS, TREND_CLIENTS))
    return Entry(f"share{round(100 * share)}", f"{share:.0%}", paper, trend, x=share)


ITEM = sweep(
    "wsm/figure3_3b",
    "FedAvg with and without WSM, by the share of clients that take part, CIFAR-10",
    "share of clients per round",
    tuple(_at(share) for share in SHARES),
    (f"The shares between 1 and 60 % are not stated: {', '.join(f'{share:g}' for share in SHARES)}.",),
)
