"""GHB, Figure 4, CIFAR: starting from a backbone that was trained on the other set."""

import dataclasses

from ..items import Entry, Item
from ..trajectories import Fields
from . import table6
from .settings import BASE, FASHION, LENET_SILO, SEEDS

# MNIST's backbone for Fashion-MNIST, trained as in Table 6.
MNIST = table6.SMALL | {"dataset": "mnist", "augment": "none"}


def _column(column: Entry, trend: Fields | None) -> Entry:
    return dataclasses.replace(
        column, trend=trend, absent="" if trend else "only Fashion-MNIST has another set like it here"
    )


COLUMNS = (
    _column(LENET_SILO[0], None),
    _column(LENET_SILO[2], FASHION | {"partition": LENET_SILO[2].paper["partition"]}),
)
SOURCES = {COLUMNS[0].name: table6.LENET_100.paper, COLUMNS[1].name: table6.LENET_10.paper}


def _pretrained(column: Entry) -> Entry:
    paper = table6.BASE.paper | SOURCES[column.name]
    trend = table6.BASE.fields("trend") | MNIST
    return dataclasses.replace(
        column,
        name=f"{column.name}_pretrained",
        label=f"{column.label}, backbone of the other set",
        begins=(Entry("backbone", paper=paper, trend=trend, alone=True), "features"),
    )


ITEM = Item(
    name="ghb/figure4b",
    title="FedAvg and FedHBM from scratch and from a backbone of the other CIFAR set, one class per client",
    base=BASE,
    rows=(
        Entry("fedavg", "FedAvg", Fields(algorithm="fedavg")),
        Entry("fedhbm", "FedHBM", Fields(algorithm="fedhbm:beta=1")),
        Entry("pretrained", "FedHBM, anchored there", Fields(algorithm="fedhbm:beta=1,first=pretrained")),
    ),
    columns=(*COLUMNS, *(_pretrained(column) for column in COLUMNS)),
    draw="curves",
    seeds=SEEDS,
    assumed=(
        "How the backbone was trained is not stated: centrally, as in Table 6, without its classifier; LeNet-5.",
        "Clients' first anchor is the model that all begin with (first=pretrained).",
    ),
    standin="Fashion-MNIST with one class per client, two layers of 200, 100 rounds, from 10 epochs on MNIST.",
    cost="Table 6's runs of LeNet-5, and 12 runs of 10,000 or 20,000 rounds of it: for a GPU",
)
