"""IMA, Figure 10: the plane through three clients' models, CIFAR-10, CNN, two shards per client."""

from .pictures import STANDIN, of_column, through_clients
from .settings import CNN_SHARDS

ITEM = through_clients(
    "ima/figure10c",
    of_column(CNN_SHARDS),
    "late",
    "CIFAR-10, CNN, two shards per client",
    STANDIN,
    "a run of 400 rounds",
)
