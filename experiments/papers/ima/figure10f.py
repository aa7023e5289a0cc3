"""IMA, Figure 10: the plane through three clients' models, CIFAR-10, ResNet-18, Dirichlet shares."""

from .pictures import of_column, through_clients
from .settings import RESNET_DIRICHLET

ITEM = through_clients(
    "ima/figure10f",
    of_column(RESNET_DIRICHLET),
    "late",
    "CIFAR-10, ResNet-18, Dirichlet shares",
    "Nothing.",
    "a run of 400 rounds",
)
