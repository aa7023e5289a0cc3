"""IMA, Figure 9: the planes of Figure 1 around the global models, at three stages."""

from ..analyses import Analysis
from .pictures import CHECKPOINTS, COARSE, FEDAVG, PLAIN, SEEDS, STAGES, STANDIN

ITEM = Analysis(
    name="ima/figure9",
    title="Loss and error on the plane through the global models of an early, a middle and a late round",
    kind="plane",
    base=PLAIN,
    runs=(FEDAVG,),
    at=STAGES,
    options=CHECKPOINTS,
    trend_options=CHECKPOINTS | COARSE,
    seeds=SEEDS,
    assumed=(
        "It shows the error where Figure 1 shows the loss; both are drawn there, so here the plane through the global "
        "models of the three stages is added.",
    ),
    standin=STANDIN,
    cost="Figure 1's run; 441 evaluations of 10,000 images",
)
