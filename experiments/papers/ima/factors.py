"""What Figures 2 to 4 of the IMA paper share: five factors of the loss, with and without decay of the rate."""

from ..analyses import Analysis
from ..items import Entry
from ..trajectories import Fields
from .pictures import CROSS_SILO, SEEDS

RUNS = (
    Entry("decay0", "without decay", Fields(algorithm="fedavg")),
    Entry("decay1", "decay 0.01", Fields(algorithm="fedavg", lr_decay=0.01)),
)
AT = tuple(number / 20 for number in range(1, 21))


def factors(number: int, title: str, *shows: str) -> Analysis:
    """Returns one of the three figures, which show different factors of the same runs.

    Args:
      number: of the figure.
      title: what it shows.
      *shows: its panels.
    """
    return Analysis(
        name=f"ima/figure{number}",
        title=title,
        kind="factors",
        base=CROSS_SILO,
        runs=RUNS,
        at=AT,
        options=Fields(replicas=2, count=2000),
        trend_options=Fields(replicas=2, count=300),
        shows=shows,
        seeds=SEEDS,
        assumed=(
            "Factors are measured on softmax outputs against one-hot labels; only distance and CKA are defined.",
            "Variance is between two local trainings with other batches; CKA is between logits on test data.",
        ),
        standin="Digits, a hidden layer of 64, all of 10 clients with two shards each, 120 rounds.",
        cost="two runs of CIFAR-10, CNN, 10 clients, 400 rounds; 20 checkpoints, whose clients train twice",
    )
