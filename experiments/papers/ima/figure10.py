"""IMA, Figure 10: planes for two data sets, two networks and both kinds of skew."""

from ..analyses import Analysis
from ..items import Entry
from .pictures import CLIENTS, COARSE, SEEDS
from .settings import (
    BASE,
    CNN_DIRICHLET,
    CNN_SHARDS,
    FMNIST_DIRICHLET,
    FMNIST_SHARDS,
    RESNET_DIRICHLET,
    RESNET_SHARDS,
)

PANELS = (FMNIST_SHARDS, FMNIST_DIRICHLET, CNN_SHARDS, CNN_DIRICHLET, RESNET_SHARDS, RESNET_DIRICHLET)
PLAIN = {"algorithm": "fedavg", "lr_decay": 0.0}


def _panel(column: Entry) -> Entry:
    trend = None if column.trend is None else column.trend | PLAIN | {"num_rounds": 100}
    paper = column.paper | PLAIN | {"num_rounds": 400}
    return Entry(column.name, column.label, paper, trend, absent=column.absent)


ITEM = Analysis(
    name="ima/figure10",
    title="Loss and error on the plane through three clients' models, four federations and two networks",
    kind="plane",
    base=BASE,
    runs=tuple(_panel(column) for column in PANELS),
    options=CLIENTS,
    trend_options=CLIENTS | COARSE,
    seeds=SEEDS,
    assumed=("Three clients of the last round; the rate does not decay.",),
    standin="CIFAR-10 with the CNN: digits, a hidden layer of 64; Fashion-MNIST's shards: itself, two layers of 200; "
    "100 rounds; nothing for the other panels.",
    cost="six runs of 400 rounds, two of them of ResNet-18: for a GPU",
)
