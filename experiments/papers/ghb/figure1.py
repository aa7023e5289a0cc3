"""GHB, Figure 1: accuracy by heterogeneity."""

from ..measures import MeanLast
from .claims import most_accurate
from .heterogeneity import COLUMNS, ROWS, over_alpha

ITEM = over_alpha(
    "ghb/figure1",
    "Accuracy of the last 100 rounds by the Dirichlet parameter, CIFAR-10, LeNet-5",
    MeanLast(),
    most_accurate(ROWS, COLUMNS[:2]),
)
