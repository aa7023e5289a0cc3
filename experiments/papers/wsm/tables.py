"""WSM, Tables 3.1 to 3.3: learning rates, methods and normalization with and without the re-weighted softmax."""

import dataclasses

from .. import standin
from ..items import Variation
from ..trajectories import Fields
from . import settings

# Table 3.1
RATES = ("0.7", "0.5", "0.3", "0.1", "0.07", "0.05", "0.03", "0.01", "0.007")
TABLE3_1 = settings.item(
    name="wsm/table3_1",
    rows=tuple(settings.at_rate(rate) for rate in RATES),
    columns=(settings.CIFAR10, settings.CIFAR100, settings.FEMNIST),
    variants=settings.VARIANTS,
    table=("wsm", "3.1"),
)

# Table 3.2: 2 of 20 clients, one evaluation at the end.
TWENTY = {"num_clients": 20, "clients_per_round": 2}


def _of_twenty(column: Variation) -> Variation:
    keys = tuple((name, text.replace("K=100", "K=20")) for name, text in column.printed)
    trend = None if column.trend is None else standin.fields("fashion_20")
    return dataclasses.replace(column, paper=column.paper | TWENTY, trend=trend, printed=keys)


def _method(name: str, label: str, algorithm: str, rate: float) -> Variation:
    keys = (("algorithm", label), ("variant", f"lr={rate:g}"))
    return Variation(name, label, Fields(algorithm=algorithm, client_lr=rate), printed=keys)


TABLE3_2 = settings.item(
    name="wsm/table3_2",
    base=dataclasses.replace(
        settings.BASE,
        paper=settings.BASE.paper | {"num_rounds": 1500, "final_evals": 1},
        printed=(("metric", "test_accuracy_fraction"),),
    ),
    rows=(
        _method("fedavg", "FedAvg", "fedavg", 0.1),
        _method("scaffold", "SCAFFOLD", "scaffold", 0.01),
        _method("fedprox", "FedProx", "fedprox:mu=1.1", 0.01),
    ),
    columns=(_of_twenty(settings.CIFAR10), _of_twenty(settings.CIFAR100)),
    variants=settings.VARIANTS,
    table=("wsm", "3.2"),
)

# Table 3.3: GroupNorm or BatchNorm alone.
NORM_RATES = ("0.3", "0.1", "0.07", "0.05", "0.03", "0.01", "0.007", "0.005")
FEWER_RATES = "one of the eight rates fits into five minutes on two cores"
TABLE3_3 = settings.item(
    name="wsm/table3_3",
    base=dataclasses.replace(settings.BASE, paper=settings.BASE.paper | {"num_rounds": 8000}),
    rows=tuple(
        dataclasses.replace(settings.at_rate(rate), absent="" if rate == settings.NORM_RATE else FEWER_RATES)
        for rate in NORM_RATES
    ),
    columns=settings.NORM_COLUMNS,
    variants=settings.VARIANTS,
    table=("wsm", "3.3"),
)
