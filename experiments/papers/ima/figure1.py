"""IMA, Figure 1: the plane through three clients' models, early, in the middle and late."""

from ..analyses import Analysis
from .pictures import CLIENTS, COARSE, FEDAVG, NOT_SAID, PLAIN, SEEDS, STAGES, STANDIN

ITEM = Analysis(
    name="ima/figure1",
    title="Loss and error on the plane through three clients' models, two shards per client",
    kind="plane",
    base=PLAIN,
    runs=(FEDAVG,),
    at=STAGES,
    options=CLIENTS,
    trend_options=CLIENTS | COARSE,
    seeds=SEEDS,
    assumed=(NOT_SAID, "The rate does not decay, as the captions of these figures say."),
    standin=STANDIN,
    cost="one run of CIFAR-10, CNN, 400 rounds; 441 evaluations of 10,000 images for each plane",
)
