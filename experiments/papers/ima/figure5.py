"""IMA, Figure 5 (c): curves with and without IMA."""

from ..claims import Claim
from ..items import Entry, Item
from .pictures import FEDAVG, PLAIN
from .settings import SEEDS, TREND_SEEDS, averaging

ITEM = Item(
    name="ima/figure5",
    title="Accuracy over rounds with and without IMA, two shards per client, without decay of the rate",
    base=PLAIN,
    rows=(FEDAVG,),
    columns=(Entry("shards", "two shards per client"),),
    variants=(Entry("base", "model"), averaging("ima", "IMA")),
    draw="curves",
    seeds=SEEDS,
    trend_seeds=TREND_SEEDS,
    claims=(Claim("IMA is above the method without it at the end.", (("variant", "ima"),), (("variant", "base"),)),),
    assumed=("Panel (a) is a sketch; panel (b) is ima/figure5b.", "Averaging begins at 75 % of the rounds."),
    standin="Digits, a hidden layer of 64, 4 of 40 clients, 120 rounds.",
    cost="Figure 1's run, and a fork of its last quarter",
)
