"""WIMA, Figure 1: curves with and without the window, one class per client."""

from ..items import Entry, Item
from .settings import BASE, CIFAR100_0, METHODS, TREND_WINDOW, WINDOW

SHOWN = ("fedavg", "mime", "scaffold")

ITEM = Item(
    name="wima/figure1",
    title="Accuracy over rounds with and without WIMA, CIFAR-100, one class per client",
    base=BASE,
    rows=tuple(row for row in METHODS if row.name in SHOWN),
    columns=(CIFAR100_0,),
    variants=(Entry("base", "model"), Entry("wima", "WIMA", read=WINDOW, trend_read=TREND_WINDOW)),
    draw="curves",
    assumed=("Which methods are drawn is known of FedAvg, MIME SGD and SCAFFOLD only.",),
    standin="Fashion-MNIST, two layers of 200, 100 rounds, W = 20.",
    cost="read off Table 2's runs",
)
