"""IMA, Figure 10: the plane through three clients' models, Fashion-MNIST, CNN, Dirichlet shares."""

from .pictures import of_column, through_clients
from .settings import FMNIST_DIRICHLET

ITEM = through_clients(
    "ima/figure10b",
    of_column(FMNIST_DIRICHLET),
    "late",
    "Fashion-MNIST, CNN, Dirichlet shares",
    "Nothing.",
    "a run of 400 rounds",
)
