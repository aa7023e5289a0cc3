"""WSM, Figure 3.1: who holds which classes."""

from ..analyses import Analysis
from ..items import Entry
from ..trajectories import Fields
from .settings import BASE, CIFAR10

ALPHAS = (0.01, 0.1, 0.5, 100)


def _at(alpha: float) -> Entry:
    return Entry(
        f"alpha{alpha:g}".replace(".", ""),
        f"alpha = {alpha:g}",
        Fields(partition=f"dirichlet:alpha={alpha:g},prior=symmetric"),
    )


ITEM = Analysis(
    name="wsm/figure3_1",
    title="Classes that ten clients hold, by the Dirichlet parameter",
    kind="labels",
    base=Entry("dealt", paper=BASE.paper | CIFAR10.paper, trend=CIFAR10.trend),
    runs=tuple(_at(alpha) for alpha in ALPHAS),
    options=Fields(clients=10),
    assumed=("The partition is drawn from seed 0.",),
    standin="Fashion-MNIST, dealt to 100 clients as well.",
    cost="nothing is trained",
)
