"""WSM, Table 3.2: with FedAvg, SCAFFOLD and FedProx, 20 clients."""

import dataclasses

from ..claims import Claim
from ..items import Entry, Item
from ..trajectories import Fields
from .settings import ASSUMED, BASE, CIFAR10, CIFAR100, SEEDS, STANDIN, TREND_SEEDS, VARIANTS

TWENTY = {"num_clients": 20, "clients_per_round": 2}
# One evaluation at the end.
ENDING = dataclasses.replace(
    BASE,
    paper=BASE.paper | {"num_rounds": 1500, "final_evals": 1},
    printed=(("metric", "test_accuracy_fraction"),),
)


def _of_twenty(column: Entry) -> Entry:
    keys = tuple((name, text.replace("K=100", "K=20")) for name, text in column.printed)
    trend = None if column.trend is None else column.trend | TWENTY
    return dataclasses.replace(column, paper=column.paper | TWENTY, trend=trend, printed=keys)


def _row(name: str, label: str, algorithm: str, rate: float) -> Entry:
    keys = (("algorithm", label), ("variant", f"lr={rate:g}"))
    return Entry(name, label, Fields(algorithm=algorithm, client_lr=rate), Fields(client_lr=0.1), printed=keys)


ITEM = Item(
    name="wsm/table3_2",
    title="Three methods with and without WSM, 2 of 20 clients",
    base=ENDING,
    rows=(
        _row("fedavg", "FedAvg", "fedavg", 0.1),
        _row("scaffold", "SCAFFOLD", "scaffold", 0.01),
        _row("fedprox", "FedProx", "fedprox:mu=1.1", 0.01),
    ),
    columns=(_of_twenty(CIFAR10), _of_twenty(CIFAR100)),
    variants=VARIANTS,
    table=("wsm", "3.2"),
    seeds=SEEDS,
    trend_seeds=TREND_SEEDS,
    claims=(
        Claim("Every method is more accurate with WSM.", (("variant", "wsm"),), (("variant", "base"),)),
        Claim(
            "Without WSM, SCAFFOLD is more accurate than FedAvg.",
            (("row", "scaffold"), ("variant", "base")),
            (("row", "fedavg"), ("variant", "base")),
        ),
        Claim(
            "FedAvg with WSM is more accurate than SCAFFOLD without.",
            (("row", "fedavg"), ("variant", "wsm")),
            (("row", "scaffold"), ("variant", "base")),
        ),
    ),
    assumed=(
        *ASSUMED,
        "Weight decay is the text's 1e-4; the code has 1e-5 for SCAFFOLD and FedProx. FedProx's row is printed as "
        "FedProx+TCE, WSM's old name.",
    ),
    standin=f"{STANDIN.replace('10 of 100', '2 of 20')}, rate 0.1; CIFAR-100: nothing.",
    cost="12 runs of 1,500 rounds of ResNet-18: for a GPU",
)
