"""WSM, Figures 2.2, A.1 and A.2 (forgetting) and 3.1 (label histograms)."""

from ..items import Analysis, Variation
from ..trajectories import Fields
from .settings import BASE, CIFAR10, STANDIN, at_alpha


def _forgetting(number: str, round: int, rounds: int = 4000) -> Analysis:
    """Returns what clients forget of each other's data after a round, with and without WSM."""
    short = {"num_rounds": rounds} if rounds != BASE.paper["num_rounds"] else {}
    trend = (BASE.trend or Fields()) | (CIFAR10.trend or Fields()) | ({"num_rounds": round} if short else {})
    return Analysis(
        name=f"wsm/figure{number}",
        title=f"What ten clients forget of each other's data in one local training after round {round:,}",
        kind="forgetting",
        base=Variation("trained", paper=BASE.paper | CIFAR10.paper | short, trend=trend),
        runs=(Variation("base", "cross-entropy"), Variation("wsm", "WSM", Fields(loss="wsm"))),
        at=(round / rounds,),
        assumed=("Ten clients of the next round, on what they hold out, 50 images each.", "The rate is 0.1."),
        standin=f"{STANDIN}.",
        cost="Table 3.1's runs at rate 0.1" if not short else "two runs of one round of ResNet-18",
    )


FORGETTING = (
    _forgetting("2_2", 2800),
    # A separate run that ends there: the long one would have to keep a checkpoint of every round.
    _forgetting("A_1", 1, rounds=1),
    _forgetting("A_2", 4000),
)
LABELS = Analysis(
    name="wsm/figure3_1",
    title="Classes that ten clients hold, by the Dirichlet parameter",
    kind="labels",
    base=Variation("partitioned", paper=BASE.paper | CIFAR10.paper, trend=CIFAR10.trend),
    runs=tuple(at_alpha(alpha) for alpha in (0.01, 0.1, 0.5, 100)),
    options=Fields(clients=10),
    assumed=("The partition is drawn from seed 0.",),
    standin="Fashion-MNIST, split among 100 clients as well.",
    cost="nothing is trained",
)

ITEMS = (*FORGETTING, LABELS)
