"""IMA, Figure 1: the plane through three clients' models, early."""

from .pictures import PLAIN, STANDIN, through_clients

ITEM = through_clients(
    "ima/figure1a",
    PLAIN,
    "early",
    "CIFAR-10, two shards per client",
    STANDIN,
    "a run of CIFAR-10, CNN, 400 rounds",
)
