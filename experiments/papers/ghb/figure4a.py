"""GHB, Figure 4, Stack Overflow: what FedHBM begins with at a client's first participation."""

from ..items import Entry, Item
from ..trajectories import Fields
from .settings import BASE, FEWER_CLIENTS, SEEDS, STACKOVERFLOW, TREND_SEEDS

ONE_CLASS = Entry(
    "stackoverflow",
    "Stack Overflow",
    STACKOVERFLOW.paper,
    FEWER_CLIENTS | {"partition": "dirichlet:alpha=0"},
    alone=True,
)

ITEM = Item(
    name="ghb/figure4a",
    title="FedHBM with different anchors at the first participation, Stack Overflow",
    base=BASE,
    rows=(
        Entry("fedavg", "FedAvg", Fields(algorithm="fedavg")),
        Entry("fedhbm", "FedHBM", Fields(algorithm="fedhbm:beta=1")),
        Entry("shared", "FedHBM-shared", Fields(algorithm="fedhbm:beta=1,first=shared")),
        Entry("random", "FedHBM-random", Fields(algorithm="fedhbm:beta=1,first=random")),
    ),
    columns=(ONE_CLASS,),
    draw="curves",
    seeds=SEEDS,
    trend_seeds=TREND_SEEDS,
    assumed=("Whether FedAvg is drawn beside them is not stated.",),
    standin="Digits with one class per client, 3 of 100 clients, a hidden layer of 64, 150 rounds.",
    cost="four runs of 1,500 rounds of the LSTM: for a GPU with the data set",
)
