"""IMA, Figure 1: the plane through three clients' models, in the middle."""

from .pictures import PLAIN, STANDIN, through_clients

ITEM = through_clients(
    "ima/figure1b",
    PLAIN,
    "middle",
    "CIFAR-10, two shards per client",
    STANDIN,
    "a run of CIFAR-10, CNN, 400 rounds",
)
