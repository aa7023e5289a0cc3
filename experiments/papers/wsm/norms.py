"""What the thesis' Figures 3.4 and 3.5 share: curves of Table 3.3's networks."""

import dataclasses

from ..items import Entry, Item
from ..trajectories import Fields
from .settings import ASSUMED, BASE, SEEDS, VARIANTS
from .table3_3 import STANDIN, TREND_RATE, of_norm

# The best rate of GroupNorm with cross-entropy, and of BatchNorm with WSM.
RATE = float(TREND_RATE)


def over_rounds(name: str, rounds: int) -> Item:
    """Returns the curves of so many rounds.

    Args:
      name: of the figure.
      rounds: how many.
    """
    return Item(
        name=name,
        title=f"Accuracy over {rounds:,} rounds with GroupNorm and BatchNorm, with and without WSM",
        base=dataclasses.replace(BASE, paper=BASE.paper | {"num_rounds": rounds}),
        rows=(Entry("fedavg", "FedAvg", Fields(client_lr=RATE)),),
        columns=(of_norm("gn"), of_norm("bn")),
        variants=VARIANTS,
        draw="curves",
        seeds=SEEDS,
        assumed=(*ASSUMED, f"The rate of the curves is not stated: {RATE}."),
        standin=STANDIN,
        cost=f"four runs of {rounds:,} rounds of ResNet-18: for a GPU",
    )
