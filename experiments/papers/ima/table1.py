"""IMA, Table I: eight methods with and without IMA on twelve federations."""

from ..claims import Claim
from ..items import Entry, Item, Override
from .settings import (
    ASSUMED,
    BASE,
    COLUMNS,
    FMNIST_SHARDS,
    METHODS,
    SEEDS,
    SPECIAL,
    STANDIN,
    TREND_SEEDS,
    averaging,
    before_adaptive_servers,
)

ACCURACY = ("metric", "mean_test_accuracy_last10_pct")
VARIANTS = (
    Entry("base", printed=(("variant", "base"), ACCURACY)),
    averaging("ima", "+ IMA", printed=(("variant", "+ima_P5"), ACCURACY)),
    # Read off the base run: an average that the clients never see.
    Entry("wima", "WIMA read-out", read="wima:window=50", trend_read="wima:window=20", ours=True),
)
ON_FASHION = ("fedavg", "fedadam")
FEWER = Override(
    Entry("fewer", absent="on Fashion-MNIST only FedAvg and FedAdam fit into five minutes on two cores"),
    rows=tuple(row.name for row in METHODS if row.name not in ON_FASHION),
    columns=(FMNIST_SHARDS.name,),
)

ITEM = Item(
    name="ima/table1",
    title="IMA on top of eight methods: accuracy of the last 10 rounds",
    base=BASE,
    rows=METHODS,
    columns=COLUMNS,
    variants=VARIANTS,
    overrides=(*SPECIAL, *before_adaptive_servers(VARIANTS), FEWER),
    table=("ima", "I"),
    seeds=SEEDS,
    trend_seeds=TREND_SEEDS,
    claims=(
        Claim("IMA is more accurate than every method without it.", (("variant", "ima"),), (("variant", "base"),)),
    ),
    assumed=(
        *ASSUMED,
        "FedASAM is rho = 0.7, eta = 0.2 for the CNNs and 0.2, 0.05 for other networks, without SWA, as in the code.",
        "FedGMA is the code's: FedAvg with an extra step of 1e-4, which is FedAvg within noise.",
        "FedFA's beta is 0.5, and 0.9 where domains differ, as in the code.",
        "CIFAR-100 by Pachinko allocation as stated; the code deals symmetric Dirichlet shares of 0.5.",
        "Two classes per client of Digit Five are two shards each; the code gives out classes of unequal size.",
        "AlexNet and the CNN of Digit Five are those that have the features that the paper states.",
    ),
    standin=f"CIFAR-10 with the CNN: {STANDIN}. Fashion-MNIST's shards: itself, two layers of 200, one local epoch, "
    "100 rounds, FedAvg and FedAdam. Other columns: nothing.",
    cost="Fashion-MNIST: 20 minutes a run on two cores; CIFAR-10's CNN some hours; the others for a GPU",
)
