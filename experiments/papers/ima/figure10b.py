"""IMA, Figure 10: the plane through three clients' models, Fashion-MNIST, CNN, Dirichlet shares."""

from .pictures import POINTS, of_column, through_clients
from .settings import DIRICHLET, FMNIST_DIRICHLET, SMALL_FASHION

ITEM = through_clients(
    "ima/figure10b",
    of_column(FMNIST_DIRICHLET, SMALL_FASHION | {"partition": DIRICHLET}),
    "late",
    "Fashion-MNIST, CNN, Dirichlet shares",
    f"Fashion-MNIST itself, two layers of 200, 100 rounds; {POINTS}",
    "a run of 400 rounds",
)
