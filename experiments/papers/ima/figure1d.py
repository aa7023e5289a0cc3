"""IMA, Figure 1, last column: the plane through the global models of rounds 398 to 400."""

from ..analyses import Analysis
from ..items import Entry
from .pictures import CHECKPOINTS, COARSE, EVALUATED, PLAIN, SEEDS, STANDIN

ITEM = Analysis(
    name="ima/figure1d",
    title="Loss and error on the plane through the global models of the last three rounds",
    kind="plane",
    base=PLAIN,
    # Forked, so that the run that other figures need keeps checkpoints of few rounds.
    runs=(Entry("fedavg", "FedAvg", fork=0.7),),
    ends=(2, 1),
    options=CHECKPOINTS,
    trend_options=CHECKPOINTS | COARSE,
    seeds=SEEDS,
    standin=STANDIN,
    cost=f"a fork of the last third of Figure 1's run; {EVALUATED}",
)
