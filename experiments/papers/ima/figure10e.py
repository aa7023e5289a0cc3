"""IMA, Figure 10: the plane through three clients' models, CIFAR-10, ResNet-18, two shards per client."""

from .pictures import of_column, through_clients
from .settings import RESNET_SHARDS

ITEM = through_clients(
    "ima/figure10e",
    of_column(RESNET_SHARDS),
    "late",
    "CIFAR-10, ResNet-18, two shards per client",
    "Nothing.",
    "a run of 400 rounds",
)
