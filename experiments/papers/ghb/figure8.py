"""GHB, Figure 8: a learning rate that falls."""

from ..claims import Claim
from ..items import Entry, Item
from ..trajectories import Fields
from .settings import BASE, RESNET_SILO, SEEDS, TREND_SEEDS

# The factor of a round -> what is lost in it.
DECAYS = {"0.999": 0.001, "0.9992": 0.0008, "0.9995": 0.0005, "0.9999": 0.0001, "1": 0.0}
# 20,000 rounds there, 100 here: with so many times the decay the rate falls as far in all.
MORE = 200


def _row(factor: str) -> Entry:
    decay = DECAYS[factor]
    lost = Fields(algorithm="fedhbm:beta=1", lr_decay=decay)
    shown = "none" if not decay else factor
    return Entry(f"x{factor}".replace(".", ""), f"decay {shown}", lost, Fields(lr_decay=round(MORE * decay, 6)))


ITEM = Item(
    name="ghb/figure8",
    title="FedHBM with rates that fall by a factor per round, CIFAR-100, ResNet-20",
    base=BASE,
    rows=tuple(_row(factor) for factor in DECAYS),
    columns=(RESNET_SILO[2], RESNET_SILO[3]),
    draw="curves",
    seeds=SEEDS,
    trend_seeds=TREND_SEEDS,
    claims=(
        Claim("No decay is at least as good as 0.9999.", (("row", "x1"),), (("row", "x09999"),), by=-1.0),
        Claim("0.9999 is better than 0.999.", (("row", "x09999"),), (("row", "x0999"),)),
    ),
    assumed=("Which method is shown is not stated: FedHBM.",),
    standin=f"Fashion-MNIST with one class per client, two layers of 200, 100 rounds, decays {MORE} times as strong; "
    "iid: nothing.",
    cost="five runs on two federations, 5 seeds x 20,000 rounds of ResNet-20: for a GPU",
)
