"""IMA, Figure 7 (b): how many models are averaged."""

from ..claims import Claim
from ..items import Item
from .settings import EARLIER, SEEDS, TREND_SEEDS, averaging
from .sweeps import FEDAVG, STANDIN, SWEPT, WHO

WINDOWS = (1, 3, 5, 10, 20)
# Large windows take longer to fill, as a share of the few rounds at trend scale.
FILLING = {10: 0.2, 20: 0.2}

ITEM = Item(
    name="ima/figure7b",
    title="FedAvg with IMA, by the size of its window",
    base=SWEPT,
    rows=(FEDAVG,),
    columns=tuple(
        averaging(f"w{size}", f"P = {size}", window=size, earlier=FILLING.get(size, EARLIER), x=float(size))
        for size in WINDOWS
    ),
    draw="sweep",
    axis="window P",
    seeds=SEEDS,
    trend_seeds=TREND_SEEDS,
    claims=(Claim("A window of 5 is better than none (P = 1).", (("column", "w5"),), (("column", "w1"),)),),
    assumed=(WHO, f"The windows are lost: {', '.join(map(str, WINDOWS))}; the rate decays alike with all of them."),
    standin=f"{STANDIN}.",
    cost="Table I's run of FedAvg, and five forks of its last third",
)
