"""What the thesis' three figures of forgetting share."""

from ..analyses import Analysis
from ..items import Entry
from ..trajectories import Fields
from .settings import BASE, CIFAR10, STANDIN


def forgetting(name: str, round: int, rounds: int = 4000) -> Analysis:
    """Returns what clients forget of each other's data after a round, with and without WSM.

    Args:
      name: of the figure.
      round: after which.
      rounds: of the run.
    """
    short = {"num_rounds": rounds} if rounds != BASE.paper["num_rounds"] else {}
    trend = (BASE.trend or Fields()) | (CIFAR10.trend or Fields()) | ({"num_rounds": round} if short else {})
    return Analysis(
        name=name,
        title=f"What ten clients forget of each other's data in one local training after round {round:,}",
        kind="forgetting",
        base=Entry("trained", paper=BASE.paper | CIFAR10.paper | short, trend=trend),
        runs=(Entry("base", "cross-entropy"), Entry("wsm", "WSM", Fields(loss="wsm"))),
        at=(round / rounds,),
        assumed=("Ten clients of the next round, on what they hold out, 50 images each.", "The rate is 0.1."),
        standin=f"{STANDIN}.",
        cost="Table 3.1's runs at rate 0.1" if not short else "two runs of one round of ResNet-18",
    )
