"""IMA, Figure 7 (c): between the final models with and without IMA."""

import dataclasses

from ..analyses import Analysis
from ..trajectories import Fields
from .figure5b import LINE
from .settings import SEEDS, averaging
from .sweeps import FEDAVG, STANDIN, SWEPT

ITEM = Analysis(
    name="ima/figure7c",
    title="Loss and accuracy between the final models of FedAvg without and with IMA",
    kind="line",
    base=dataclasses.replace(
        SWEPT, paper=SWEPT.paper | FEDAVG.paper, trend=SWEPT.trend | FEDAVG.paper if SWEPT.trend else None
    ),
    runs=(dataclasses.replace(FEDAVG, label="without IMA"), averaging("ima", "with IMA")),
    options=LINE,
    trend_options=Fields(),
    seeds=SEEDS,
    assumed=("The end without IMA is the final model of a run of its own with the same seed.",),
    standin=f"{STANDIN}.",
    cost="Table I's two runs of FedAvg; 41 evaluations",
)
