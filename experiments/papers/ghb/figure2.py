"""GHB, Figure 2: curves of ResNet-20, one class per client."""

from ..items import Item
from . import methods
from .settings import BASE, RESNET_SILO, SEEDS, STANDIN
from .table10 import ROWS

ITEM = Item(
    name="ghb/figure2",
    title="Accuracy over rounds, ResNet-20, one class per client",
    base=BASE,
    rows=ROWS,
    columns=(RESNET_SILO[0], RESNET_SILO[2]),
    overrides=methods.RESNET,
    draw="curves",
    seeds=SEEDS,
    assumed=("The methods are those of Table 10.",),
    standin=STANDIN,
    cost="read off Table 10's runs",
)
