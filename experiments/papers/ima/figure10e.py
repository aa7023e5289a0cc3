"""IMA, Figure 10: the plane through three clients' models, CIFAR-10, ResNet-18, two shards per client."""

from .pictures import RESIDUAL, RESIDUAL_STANDIN, of_column, through_clients
from .settings import RESNET_SHARDS, SHARDS

ITEM = through_clients(
    "ima/figure10e",
    of_column(RESNET_SHARDS, RESIDUAL | {"partition": SHARDS}),
    "late",
    "CIFAR-10, ResNet-18, two shards per client",
    RESIDUAL_STANDIN,
    "a run of 400 rounds",
)
