"""GHB, Table 10: ResNet-20, cross-silo."""

import dataclasses

from ..items import Item
from . import methods
from .claims import most_accurate
from .methods import picked
from .settings import ACCURACY, ASSUMED, BASE, CROSS_SILO, RESNET_SILO, SEEDS, STANDIN, TREND_SEEDS

ROWS = picked("fedavg", "scaffold", "feddyn", "mime", "fedavgm", "mime_momentum", "mimelite", "local_ghb", "fedhbm")
ALPHA0 = (RESNET_SILO[0], RESNET_SILO[2])

ITEM = Item(
    name="ghb/table10",
    title="Cross-silo: accuracy of the last 100 rounds of nine methods, ResNet-20",
    base=dataclasses.replace(BASE, printed=(CROSS_SILO, ACCURACY)),
    rows=ROWS,
    columns=RESNET_SILO,
    overrides=methods.RESNET,
    table=("ghb", "10"),
    seeds=SEEDS,
    trend_seeds=TREND_SEEDS,
    claims=(
        *most_accurate(ROWS, ALPHA0),
        *most_accurate(tuple(row for row in ROWS if row.name != "fedhbm"), ALPHA0[:1], "local_ghb"),
    ),
    assumed=(*ASSUMED, "Local-GHB's momentum is the released configuration's, 0.9."),
    standin=f"{STANDIN} The same runs as in Table 3, and Local-GHB.",
    cost="5 seeds x 10,000 or 20,000 rounds of ResNet-20 per cell: for a GPU",
)
