"""IMA, Figure 10: the plane through three clients' models, CIFAR-10, ResNet-18, Dirichlet shares."""

from .pictures import RESIDUAL, RESIDUAL_STANDIN, of_column, through_clients
from .settings import DIRICHLET, FEW, RESNET_DIRICHLET

ITEM = through_clients(
    "ima/figure10f",
    of_column(RESNET_DIRICHLET, RESIDUAL | {"partition": DIRICHLET + FEW}),
    "late",
    "CIFAR-10, ResNet-18, Dirichlet shares",
    RESIDUAL_STANDIN,
    "a run of 400 rounds",
)
