"""IMA, Figure 5 (b): between two global models."""

from ..analyses import Analysis
from ..trajectories import Fields
from .pictures import FEDAVG, PLAIN, SEEDS

# All test images, and as many training images, one fixed draw.
LINE = Fields(count=10_000)

ITEM = Analysis(
    name="ima/figure5b",
    title="Loss and accuracy between the global models of two rounds",
    kind="line",
    base=PLAIN,
    runs=(FEDAVG,),
    at=(0.75, 1.0),
    options=LINE,
    trend_options=Fields(),
    seeds=SEEDS,
    assumed=("Which two rounds is not stated: 300 and 400 of 400; s runs from -0.5 to 1.5 at 41 points.",),
    standin="Digits, a hidden layer of 64, 4 of 40 clients, 120 rounds.",
    cost="Figure 1's run; 41 evaluations",
)
