"""IMA, Figure 10: the plane through three clients' models, CIFAR-10, CNN, Dirichlet shares."""

from .pictures import STANDIN, of_column, through_clients
from .settings import CNN_DIRICHLET

ITEM = through_clients(
    "ima/figure10d",
    of_column(CNN_DIRICHLET),
    "late",
    "CIFAR-10, CNN, Dirichlet shares",
    STANDIN,
    "a run of 400 rounds",
)
