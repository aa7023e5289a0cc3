"""IMA, Figure 9: the plane through the global models of three stages."""

from ..analyses import Analysis
from .pictures import CHECKPOINTS, COARSE, EVALUATED, FEDAVG, PLAIN, SEEDS, STAGES, STANDIN

ITEM = Analysis(
    name="ima/figure9",
    title="Loss and error on the plane through the global models of an early, a middle and a late round",
    kind="plane",
    base=PLAIN,
    runs=(FEDAVG,),
    at=tuple(STAGES.values()),
    options=CHECKPOINTS,
    trend_options=CHECKPOINTS | COARSE,
    seeds=SEEDS,
    assumed=(
        "It shows the error where Figure 1 shows the loss; both are drawn there, so here the plane through the global "
        "models of the three stages is added.",
    ),
    standin=STANDIN,
    cost=f"Figure 1's run; {EVALUATED}",
)
