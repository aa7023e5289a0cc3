"""IMA, Figure 7 (a): when averaging begins."""

from ..items import Item
from .settings import SEEDS, TREND_SEEDS, averaging
from .sweeps import FEDAVG, STANDIN, SWEPT, WHO
from .table2 import STARTS

ITEM = Item(
    name="ima/figure7a",
    title="FedAvg with IMA, by the round that averaging begins at",
    base=SWEPT,
    rows=(FEDAVG,),
    columns=tuple(
        averaging(f"start{start}", f"from {start}", start=share, x=float(start)) for start, share in STARTS.items()
    ),
    draw="sweep",
    axis="first averaged round of 400",
    seeds=SEEDS,
    trend_seeds=TREND_SEEDS,
    assumed=(WHO, "The rounds are those of Table II."),
    standin=f"{STANDIN}; averaging from the same shares of the rounds.",
    cost="Table II's runs of FedAvg",
)
