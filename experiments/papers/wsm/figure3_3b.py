"""WSM, Figure 3.3: how many clients take part."""

from ..items import Entry
from ..trajectories import Fields
from .sweeps import FEWER, sweep

SHARES = (0.01, 0.05, 0.1, 0.2, 0.4, 0.6)
CLIENTS = 100
TREND_SHARES = (0.01, 0.05, 0.1, 0.2)


def _at(share: float) -> Entry:
    fields = Fields(clients_per_round=round(share * CLIENTS))
    absent = "" if share in TREND_SHARES else FEWER
    return Entry(f"share{round(100 * share)}", f"{share:.0%}", fields, absent=absent, x=share)


ITEM = sweep(
    "wsm/figure3_3b",
    "FedAvg with and without WSM, by the share of clients that take part, CIFAR-10",
    "share of clients per round",
    tuple(_at(share) for share in SHARES),
    (f"The shares between 1 and 60 % are not stated: {', '.join(f'{share:g}' for share in SHARES)}.",),
)
