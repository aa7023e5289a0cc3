"""GHB, Table 5: Landmarks and iNaturalist."""

import dataclasses

from ..items import Entry, Item, Override
from ..measures import Overhead
from ..trajectories import Fields
from ..wima.table3 import LANDMARKS as OF_WIMA
from .claims import most_accurate
from .methods import MIME, picked
from .settings import ACCURACY, ASSUMED, BASE, DIGITS, SEEDS, TREND_SEEDS

NETWORK = ("model", "MobileNetV2-GN*")
LANDMARKS = Entry(
    "landmarks",
    "Landmarks-User-160k",
    OF_WIMA.paper,
    OF_WIMA.trend,
    alone=True,
    printed=(
        ("dataset", "Landmarks-User-160k"),
        ("partition", "natural_authors;K=1262"),
        NETWORK,
        ("variant", "m=10;C=0.79pct"),
    ),
)
# Clients per round -> (per cent of all, as printed; clients at trend scale).
COHORTS = {10: ("0.1", 3), 50: ("0.5", 10), 100: ("1", 20)}


def _inaturalist(clients: int) -> Entry:
    share, fewer = COHORTS[clients]
    return Entry(
        f"inaturalist_m{clients}",
        f"iNaturalist, m = {clients}",
        OF_WIMA.paper | {"dataset": "inaturalist", "clients_per_round": clients},
        DIGITS | {"partition": "dirichlet:alpha=0", "clients_per_round": fewer},
        alone=True,
        printed=(
            ("dataset", "iNaturalist-User-120k"),
            ("partition", "natural_users;K=9275"),
            NETWORK,
            ("variant", f"m={clients};C={share}pct"),
        ),
    )


INATURALIST = tuple(_inaturalist(clients) for clients in COHORTS)
COUNTED = dataclasses.replace(LANDMARKS, name="overhead", label="communication", printed=(NETWORK,))
ROWS = picked("fedavg", "scaffold", "fedavgm", "mime_momentum", "fedhbm")
# The text: server rate 0.1 for FedAvgM, 1 for the rest.
MOMENTUM = tuple(Fields(algorithm=f"mime:beta={beta},server_lr=1{MIME}") for beta in ("0.99", "0.9"))
WITH_RATE_1 = Override(
    Entry("mime_rate1", paper=MOMENTUM[0], trend=Fields(), alone=True, grid=MOMENTUM), rows=("mime_momentum",)
)

ITEM = Item(
    name="ghb/table5",
    title="Large scale: Landmarks and iNaturalist, MobileNetV2",
    base=BASE,
    rows=ROWS,
    columns=(LANDMARKS, *INATURALIST, COUNTED),
    variants=(
        Entry("accuracy", printed=(ACCURACY,)),
        Entry("overhead", "communication", printed=(("metric", "comm_overhead_factor"),), measure=Overhead()),
    ),
    overrides=(WITH_RATE_1,),
    table=("ghb", "5"),
    seeds=SEEDS,
    trend_seeds=TREND_SEEDS,
    claims=tuple(
        dataclasses.replace(
            claim, better=(*claim.better, ("variant", "accuracy")), worse=(*claim.worse, ("variant", "accuracy"))
        )
        for claim in most_accurate(ROWS, (LANDMARKS, *INATURALIST))
    ),
    assumed=(
        *ASSUMED[1:2],
        "Rounds, batches and weight decay are not stated: 3,000, 50 and 4e-5 as for WIMA's Landmarks, for both sets.",
        "ImageNet's weights have to be given (--model=mobilenetv2:weights=FILE); without them training starts afresh.",
        "0.0 is what a method that does not learn prints.",
    ),
    standin="Landmarks: Fashion-MNIST with alpha = 0.05, two layers of 200, 100 rounds; iNaturalist: digits with one "
    "class per client, a hidden layer of 64, 150 rounds of 3, 10 and 20 of 100 clients.",
    cost="5 seeds x 3,000 rounds of MobileNetV2 on 224 x 224 images: for a GPU with the data sets",
)
