"""GHB, Table 4: cross-device accuracy of twelve methods."""

import dataclasses

from ..items import Item
from . import methods
from .claims import most_accurate
from .methods import METHODS
from .settings import (
    ACCURACY,
    ASSUMED,
    BASE,
    CROSS_DEVICE,
    LENET_DEVICE,
    SEEDS,
    STACKOVERFLOW,
    TREND_SEEDS,
)

ITEM = Item(
    name="ghb/table4",
    title="Cross-device: accuracy of the last 100 rounds of twelve methods, LeNet-5 and an LSTM",
    base=dataclasses.replace(BASE, printed=(CROSS_DEVICE, ACCURACY)),
    rows=METHODS,
    columns=(*LENET_DEVICE, STACKOVERFLOW),
    overrides=methods.STACKOVERFLOW,
    table=("ghb", "4"),
    seeds=SEEDS,
    trend_seeds=TREND_SEEDS,
    claims=most_accurate(METHODS, (LENET_DEVICE[0], LENET_DEVICE[2])),
    assumed=(
        *ASSUMED,
        "Of Stack Overflow 40,000 users are drawn by seed, and 10,000 test sentences once; the word after the last "
        "position counts. 50 clients of them are 0.125 % a round, not 0.12.",
        "FedCM on Stack Overflow has no entry in Table 7: eta 1, local rate 0.3, alpha 0.1.",
    ),
    standin="CIFAR-10: digits, a hidden layer of 64, 3 of 100 clients, 150 rounds, rates from a coarse search for 10 "
    "of 100; the others: nothing.",
    cost="CIFAR-10: 2 hours a run on two cores, 7 with an evaluation every five rounds; the others for a GPU",
)
