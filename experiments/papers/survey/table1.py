"""Every method on the digits and on Fashion-MNIST, with a window beside each."""

from ..claims import Claim
from ..items import Entry, Item
from ..trajectories import Fields
from ..wima.settings import BASE, DIGITS, FASHION
from .settings import METHODS, WINDOW

# Label -> partition.
PARTITIONS = {
    "iid": ("IID", "iid"),
    "alpha03": ("alpha = 0.3", "dirichlet:alpha=0.3"),
    "alpha0": ("alpha = 0", "dirichlet:alpha=0"),
}
COHORTS = {10: "10 %", 3: "3 %"}


def _column(partition: str, clients: int) -> Entry:
    label, text = PARTITIONS[partition]
    fields = DIGITS | Fields(partition=text, clients_per_round=clients)
    return Entry(f"{partition}_m{clients}", f"{label}, {COHORTS[clients]}", fields)


ITEM = Item(
    name="survey/table1",
    title="All methods x heterogeneity x participation on the digits, and one class per client of Fashion-MNIST",
    base=Entry("survey", paper=BASE.fields("trend")),
    rows=METHODS,
    columns=(
        *(_column(partition, clients) for partition in PARTITIONS for clients in COHORTS),
        Entry("fashion_alpha0", "Fashion-MNIST, alpha = 0, 10 %", FASHION | {"partition": "dirichlet:alpha=0"}),
    ),
    variants=(Entry("base", "model"), Entry("wima", "WIMA", read=WINDOW)),
    trend_seeds=(0, 1, 2),
    paired=True,
    claims=(
        Claim("A window of 20 is more accurate than the model.", (("variant", "wima"),), (("variant", "base"),)),
        Claim("SCAFFOLD is more accurate than FedAvg.", (("row", "scaffold"),), (("row", "fedavg"),)),
        Claim("FedHBM is more accurate than FedAvg.", (("row", "fedhbm"),), (("row", "fedavg"),)),
        Claim("GHB with tau = 1 / C is more accurate than FedAvg.", (("row", "ghb"),), (("row", "fedavg"),)),
    ),
    standin="100 clients; digits: a hidden layer of 64, 150 rounds of three epochs, batches of 7; Fashion-MNIST: two "
    "layers of 200, 100 rounds of one epoch, batches of 50. Rates come from one coarse search on the digits with one "
    "class per client (seed 100) and are the same in all columns.",
    cost="seconds a run",
)
