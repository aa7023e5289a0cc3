"""IMA, Figure 8: the planes of Figure 1 where all of ten clients take part."""

import dataclasses

from ..analyses import Analysis
from ..trajectories import Fields
from .pictures import CLIENTS, COARSE, CROSS_SILO, FEDAVG, NOT_SAID, SEEDS, STAGES

# Half as many rounds as elsewhere.
HALF = {"num_rounds": 200}

ITEM = Analysis(
    name="ima/figure8",
    title="Loss and error on the plane through three of ten clients, all of which take part",
    kind="plane",
    base=dataclasses.replace(
        CROSS_SILO, paper=CROSS_SILO.paper | HALF, trend=(CROSS_SILO.trend or Fields()) | {"num_rounds": 60}
    ),
    runs=(FEDAVG,),
    at=STAGES,
    options=CLIENTS,
    trend_options=CLIENTS | COARSE,
    seeds=SEEDS,
    assumed=(NOT_SAID,),
    standin="Digits, a hidden layer of 64, all of 10 clients, 60 rounds; 15 points along an axis.",
    cost="a run of CIFAR-10, CNN, 10 clients, 200 rounds; 441 evaluations of 10,000 images for each plane",
)
