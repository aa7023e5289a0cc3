"""What the three panels of the thesis' Figure 3.3 share: CIFAR-10 with and without WSM, a parameter along the axis."""

from ..claims import Claim
from ..items import Entry, Item
from ..trajectories import Fields
from .settings import ASSUMED, BASE, CIFAR10, SEEDS, STANDIN, TREND_SEEDS, VARIANTS

FEWER = "fewer values fit into five minutes on two cores"
SWEPT = Entry(
    "swept",
    paper=BASE.paper | CIFAR10.paper,
    trend=(BASE.trend or Fields()) | (CIFAR10.trend or Fields()),
    measure=BASE.measure,
)


def sweep(name: str, title: str, axis: str, columns: tuple[Entry, ...], assumed: tuple[str, ...] = ()) -> Item:
    """Returns a panel.

    Args:
      name: of the item.
      title: what it shows.
      axis: the parameter, in words.
      columns: its values.
      assumed: what is not stated of it.
    """
    return Item(
        name=name,
        title=title,
        base=SWEPT,
        rows=(Entry("fedavg", "FedAvg"),),
        columns=columns,
        variants=VARIANTS,
        draw="sweep",
        axis=axis,
        seeds=SEEDS,
        trend_seeds=TREND_SEEDS,
        claims=(Claim("WSM is more accurate throughout.", (("variant", "wsm"),), (("variant", "base"),)),),
        assumed=(*ASSUMED, *assumed, "The rate is 0.1."),
        standin=f"{STANDIN}.",
        cost=f"{2 * len(columns)} runs of 4,000 rounds of ResNet-18: for a GPU",
    )
