"""IMA, Figure 1, last column: the plane through the global models of rounds 398 to 400."""

from ..analyses import Analysis
from .pictures import CHECKPOINTS, COARSE, FEDAVG, PLAIN, SEEDS, STANDIN

ITEM = Analysis(
    name="ima/figure1b",
    title="Loss and error on the plane through the global models of the last three rounds",
    kind="plane",
    base=PLAIN,
    runs=(FEDAVG,),
    ends=(2, 1),
    options=CHECKPOINTS,
    trend_options=CHECKPOINTS | COARSE,
    seeds=SEEDS,
    standin=STANDIN,
    cost="Figure 1's run; 441 evaluations of 10,000 images",
)
