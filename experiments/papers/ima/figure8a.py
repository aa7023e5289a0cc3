"""IMA, Figure 8: the plane through three of ten clients that all take part, early."""

from .pictures import CROSS_SILO_HALF, through_clients

ITEM = through_clients(
    "ima/figure8a",
    CROSS_SILO_HALF,
    "early",
    "CIFAR-10, two shards each, all of 10 clients",
    "Digits, a hidden layer of 64, all of 10 clients, 60 rounds; 15 points along an axis.",
    "a run of CIFAR-10, CNN, 10 clients, 200 rounds",
)
