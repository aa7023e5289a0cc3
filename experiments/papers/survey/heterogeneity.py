"""Survey: every method on the digits and on Fashion-MNIST, with and without a window."""

from ..items import Item, Variation
from ..trajectories import Fields
from ..wima.settings import BASE, DIGITS, FASHION

# Name -> (label, fields): the coefficients and rates that did best in a coarse search on the digits (seed 100, one
# class per client).
_METHODS: dict[str, tuple[str, Fields]] = {
    "fedavg": ("FedAvg", Fields(algorithm="fedavg")),
    "fedavgm": ("FedAvgM", Fields(algorithm="fedavgm:beta=0.9,server_lr=0.3")),
    "fedadam": ("FedAdam", Fields(algorithm="fedadam")),
    "fedyogi": ("FedYogi", Fields(algorithm="fedyogi")),
    "fedadagrad": ("FedAdagrad", Fields(algorithm="fedadagrad:server_lr=0.03")),
    "fedprox": ("FedProx", Fields(algorithm="fedprox:mu=0.1")),
    "scaffold": ("SCAFFOLD", Fields(algorithm="scaffold")),
    "scaffold_one": ("SCAFFOLD (option I)", Fields(algorithm="scaffold:option=I")),
    "feddyn": ("FedDyn", Fields(algorithm="feddyn:alpha=0.1")),
    "adabest": ("AdaBest", Fields(algorithm="adabest:mu=0.02,beta=0.8")),
    "fedcm": ("FedCM", Fields(algorithm="fedcm:alpha=0.1", client_lr=0.3)),
    "fedadc": ("FedADC", Fields(algorithm="fedadc:beta_global=0.7")),
    "fedacg": ("FedACG", Fields(algorithm="fedacg:lam=0.8,beta=0.01")),
    "mime": ("MIME", Fields(algorithm="mime")),
    "mime_momentum": ("MIME, momentum", Fields(algorithm="mime:beta=0.9", client_lr=0.02)),
    "mimelite": ("MIMELite", Fields(algorithm="mimelite:beta=0.9", client_lr=0.02)),
    "fednova": ("FedNova", Fields(algorithm="fednova")),
    "fedgma": ("FedGMA", Fields(algorithm="fedgma:threshold=0.4")),
    "fedsam": ("FedSAM", Fields(algorithm="fedsam:rho=0.1")),
    "fedasam": ("FedASAM", Fields(algorithm="fedasam:rho=0.7,eta=0.2")),
    "fedfa": ("FedFA", Fields(algorithm="fedfa")),
    "ghb": ("GHB, tau = 1 / C", Fields(algorithm="ghb")),
    "local_ghb": ("Local-GHB", Fields(algorithm="local_ghb")),
    "fedhbm": ("FedHBM", Fields(algorithm="fedhbm")),
    "fedhbm_nesterov": ("FedHBM, Nesterov", Fields(algorithm="fedhbm:nesterov=true")),
    "ima": ("FedAvg + IMA", Fields(algorithm="fedavg", wrap=["ima"])),
    "swa": ("FedAvg + SWA", Fields(algorithm="fedavg", wrap=["swa"])),
}
METHODS = tuple(Variation(name, label, fields) for name, (label, fields) in _METHODS.items())
WINDOW = "wima:window=20"
# Name -> (label, partition).
PARTITIONS = {
    "iid": ("IID", "iid"),
    "alpha03": ("alpha = 0.3", "dirichlet:alpha=0.3"),
    "alpha0": ("alpha = 0", "dirichlet:alpha=0"),
}
COHORTS = {10: "10 %", 3: "3 %"}


def _column(partition: str, clients: int) -> Variation:
    """Returns the column of a partition of the digits and a number of clients per round."""
    label, text = PARTITIONS[partition]
    fields = DIGITS | Fields(partition=text, clients_per_round=clients)
    return Variation(f"{partition}_m{clients}", f"{label}, {COHORTS[clients]}", fields)


TABLE1 = Item(
    name="survey/table1",
    title="All methods x heterogeneity x participation on the digits, and one class per client of Fashion-MNIST",
    base=Variation("survey", paper=BASE.fields("trend")),
    rows=METHODS,
    columns=(
        *(_column(partition, clients) for partition in PARTITIONS for clients in COHORTS),
        Variation("fashion_alpha0", "Fashion-MNIST, alpha = 0, 10 %", FASHION | {"partition": "dirichlet:alpha=0"}),
    ),
    variants=(Variation("base", "model"), Variation("wima", "WIMA", read=WINDOW)),
    paired=True,
    standin="100 clients; digits: a hidden layer of 64, 150 rounds of three epochs, batches of 7; Fashion-MNIST: two "
    "layers of 200, 100 rounds of one epoch, batches of 50. Rates come from one coarse search on the digits with one "
    "class per client (seed 100) and are the same in all columns.",
    cost="seconds a run",
)

ITEMS = (TABLE1,)
