"""GHB, Figure 1: accuracy by heterogeneity."""

from ..measures import MeanLast
from .claims import most_accurate
from .heterogeneity import ROWS, over_alpha

ITEM = over_alpha(
    "ghb/figure1",
    "Accuracy of the last 100 rounds by the Dirichlet parameter, CIFAR-10, LeNet-5",
    MeanLast(),
    most_accurate(ROWS, ("cifar10_noniid", "cifar10_alpha005")),
)
