"""IMA, Figure 1: the plane through three clients' models, late."""

from .pictures import PLAIN, STANDIN, through_clients

ITEM = through_clients(
    "ima/figure1c",
    PLAIN,
    "late",
    "CIFAR-10, two shards per client",
    STANDIN,
    "a run of CIFAR-10, CNN, 400 rounds",
)
