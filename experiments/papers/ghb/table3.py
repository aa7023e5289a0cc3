"""GHB, Table 3: cross-silo accuracy of twelve methods."""

import dataclasses

from ..items import Item
from . import methods
from .claims import most_accurate
from .methods import METHODS
from .settings import (
    ACCURACY,
    ASSUMED,
    BASE,
    CROSS_SILO,
    LENET_SILO,
    SEEDS,
    SHAKESPEARE,
    STANDIN,
    TREND_SEEDS,
)

COLUMNS = (*LENET_SILO, *SHAKESPEARE)
OVERRIDES = methods.SHAKESPEARE

ITEM = Item(
    name="ghb/table3",
    title="Cross-silo: accuracy of the last 100 rounds of twelve methods, LeNet-5 and an LSTM",
    base=dataclasses.replace(BASE, printed=(CROSS_SILO, ACCURACY)),
    rows=METHODS,
    columns=COLUMNS,
    overrides=OVERRIDES,
    table=("ghb", "3"),
    seeds=SEEDS,
    trend_seeds=TREND_SEEDS,
    claims=most_accurate(METHODS, (LENET_SILO[0], LENET_SILO[2], SHAKESPEARE[0])),
    assumed=ASSUMED,
    standin=STANDIN,
    cost="Shakespeare: half an hour a seed on two cores; 5 seeds x 10,000 or 20,000 rounds of LeNet-5: for a GPU",
)
