"""IMA, Figure 6 (c): how long clients train."""

from ..items import Entry, Item
from ..trajectories import Fields
from .settings import SEEDS, TREND_SEEDS
from .sweeps import BETTER, FEDAVG, STANDIN, SWEPT, WHO, WITH_AND_WITHOUT

EPOCHS = (3, 5, 7, 9, 11, 13, 15, 17)

ITEM = Item(
    name="ima/figure6c",
    title="FedAvg with and without IMA, by local epochs",
    base=SWEPT,
    rows=(FEDAVG,),
    columns=tuple(
        Entry(f"epochs{epochs}", f"E = {epochs}", Fields(local_epochs=epochs), x=float(epochs)) for epochs in EPOCHS
    ),
    variants=WITH_AND_WITHOUT,
    draw="sweep",
    axis="local epochs",
    seeds=SEEDS,
    trend_seeds=TREND_SEEDS,
    claims=(BETTER,),
    assumed=(WHO, "Local epochs go from 3 to 17; every second number is taken."),
    standin=f"{STANDIN}.",
    cost="eight runs of CIFAR-10, CNN, 400 rounds of 3 to 17 local epochs, and a fork of each",
)
