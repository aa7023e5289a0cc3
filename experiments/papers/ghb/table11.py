"""GHB, Table 11: FedHBM with Nesterov's gradients beside Table 3."""

import dataclasses

from ..claims import Claim
from ..items import Item
from ..trajectories import Fields
from .methods import METHODS, NESTEROV, method
from .settings import ACCURACY, ASSUMED, BASE, CROSS_SILO, SEEDS, STANDIN, TREND_SEEDS
from .table3 import COLUMNS, OVERRIDES

NOT_SHOWN = ("fedcm", "fedadc")
WITH_NESTEROV = dataclasses.replace(
    method("nesterov", "FedHBM", NESTEROV, Fields(algorithm=NESTEROV)),
    label="FedHBM, Nesterov",
    printed=(("algorithm", "FedHBM"), ("variant", "cross_silo+nesterov")),
)
ROWS = (
    *(dataclasses.replace(row, printed=(*row.printed, CROSS_SILO)) for row in METHODS if row.name not in NOT_SHOWN),
    WITH_NESTEROV,
)

ITEM = Item(
    name="ghb/table11",
    title="Table 3's methods and FedHBM with Nesterov's gradients",
    base=dataclasses.replace(BASE, printed=(ACCURACY,)),
    rows=ROWS,
    columns=COLUMNS,
    overrides=OVERRIDES,
    table=("ghb", "11"),
    seeds=SEEDS,
    trend_seeds=TREND_SEEDS,
    claims=(
        Claim(
            "FedHBM with Nesterov's gradients is more accurate than FedAvg, CIFAR-10, one class per client.",
            (("row", "nesterov"), ("column", "cifar10_noniid")),
            (("row", "fedavg"), ("column", "cifar10_noniid")),
        ),
        Claim(
            "FedHBM is within a point of its form with Nesterov's gradients, CIFAR-10, one class per client.",
            (("row", "fedhbm"), ("column", "cifar10_noniid")),
            (("row", "nesterov"), ("column", "cifar10_noniid")),
            by=-1.0,
        ),
    ),
    assumed=ASSUMED,
    standin=STANDIN,
    cost="Table 3's runs and five of FedHBM with Nesterov's gradients per column",
)
