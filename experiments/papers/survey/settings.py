"""The methods of the survey, with rates from a coarse search on the digits (seed 100, one class per client)."""

from ..items import Entry
from ..trajectories import Fields

# Name -> (label, fields): coefficients and rates that did best on the digits.
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
METHODS = tuple(Entry(name, label, fields) for name, (label, fields) in _METHODS.items())
WINDOW = "wima:window=20"
