"""Survey: every method on the digits and on Fashion-MNIST, with and without a window."""

from .. import standin
from ..items import Item, Variation, methods
from ..trajectories import Fields
from ..wima.settings import BASE, FASHION

# Coefficients and rates that did best in a coarse search on the digits (seed 100, one class per client).
METHODS = methods("survey")
WINDOW = "wima:window=20"
# Name -> (label, partition).
PARTITIONS = {
    "iid": ("IID", "iid"),
    "alpha03": ("alpha = 0.3", "dirichlet:alpha=0.3"),
    "alpha0": ("alpha = 0", "dirichlet:alpha=0"),
}
COHORTS = {10: "10 %", 3: "3 %"}


def _column(partition: str, clients: int) -> Variation:
    label, text = PARTITIONS[partition]
    fields = standin.DIGITS | Fields(partition=text, clients_per_round=clients, client_lr=0.05)
    return Variation(f"{partition}_m{clients}", f"{label}, {COHORTS[clients]}", fields)


TABLE1 = Item(
    name="survey/table1",
    base=Variation("survey", paper=BASE.fields("trend")),
    rows=METHODS,
    columns=(
        *(_column(partition, clients) for partition in PARTITIONS for clients in COHORTS),
        Variation("fashion_alpha0", "Fashion-MNIST, alpha = 0, 10 %", FASHION | {"partition": "dirichlet:alpha=0"}),
    ),
    variants=(Variation("base", "model"), Variation("wima", "WIMA", read=WINDOW)),
    paired=True,
)
