"""IMA, Figure 10: the plane through three clients' models, Fashion-MNIST, CNN, two shards per client."""

from .pictures import POINTS, of_column, through_clients
from .settings import FMNIST_SHARDS

ITEM = through_clients(
    "ima/figure10a",
    of_column(FMNIST_SHARDS),
    "late",
    "Fashion-MNIST, CNN, two shards per client",
    f"Fashion-MNIST itself, two layers of 200, 100 rounds; {POINTS}",
    "a run of 400 rounds",
)
