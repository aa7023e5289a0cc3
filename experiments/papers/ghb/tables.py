"""GHB, Tables 2 to 6 and 9 to 11: accuracies, rounds to a target, large-scale data, centralized training."""

import dataclasses

from .. import standin
from ..items import Override, Variation, columns
from ..measures import Overhead, RoundsTo, Speedup
from ..trajectories import Fields
from . import settings

# Tables 3, 4, 10 and 11: accuracies.
TABLE3_COLUMNS = (*settings.LENET_SILO, *settings.SHAKESPEARE)
TABLE3 = settings.item(
    name="ghb/table3",
    base=dataclasses.replace(settings.BASE, printed=(settings.CROSS_SILO, settings.ACCURACY)),
    rows=settings.METHODS,
    columns=TABLE3_COLUMNS,
    overrides=settings.OF_SHAKESPEARE,
    table=("ghb", "3"),
)
TABLE4 = settings.item(
    name="ghb/table4",
    base=dataclasses.replace(settings.BASE, printed=(settings.CROSS_DEVICE, settings.ACCURACY)),
    rows=settings.METHODS,
    columns=(*settings.LENET_DEVICE, settings.STACKOVERFLOW),
    overrides=settings.OF_STACKOVERFLOW,
    table=("ghb", "4"),
)

TABLE10_ROWS = settings.picked(
    "fedavg", "scaffold", "feddyn", "mime", "fedavgm", "mime_momentum", "mimelite", "local_ghb", "fedhbm"
)
ONE_CLASS_COLUMNS = (settings.RESNET_SILO[0], settings.RESNET_SILO[2])
TABLE10 = settings.item(
    name="ghb/table10",
    base=dataclasses.replace(settings.BASE, printed=(settings.CROSS_SILO, settings.ACCURACY)),
    rows=TABLE10_ROWS,
    columns=settings.RESNET_SILO,
    overrides=settings.OF_RESNET,
    table=("ghb", "10"),
)

# Tables 9 and 11 do not show two of the methods.
SHOWN = tuple(row for row in settings.METHODS if row.name not in ("fedcm", "fedadc"))
TABLE11 = settings.item(
    name="ghb/table11",
    base=dataclasses.replace(settings.BASE, printed=(settings.ACCURACY,)),
    rows=(
        *(dataclasses.replace(row, printed=(*row.printed, settings.CROSS_SILO)) for row in SHOWN),
        dataclasses.replace(settings.NESTEROV, printed=(("algorithm", "FedHBM"), ("variant", "cross_silo+nesterov"))),
    ),
    columns=TABLE3_COLUMNS,
    overrides=settings.OF_SHAKESPEARE,
    table=("ghb", "11"),
)

# Tables 2 and 9: rounds to a target, a share of the centralized accuracy; for Fashion-MNIST, Table 6 has it.
FASHION_CENTRALIZED = 89.0
FEDAVG = Fields(algorithm="fedavg")
OVERHEAD = Variation("overhead", "communication", printed=(("metric", "comm_overhead_factor"),), measure=Overhead())


def _target_variants(targets: dict[int, float], centralized: float) -> tuple[Variation, ...]:
    """Returns rounds to every target, FedAvg's rounds over them, and the communication."""
    variants = []
    for share, percent in targets.items():
        metric, trend = f"rounds_to_{share}pct_of_centralized", round(centralized * share / 100, 2)
        rounds, speed = (("metric", metric),), (("metric", f"{metric}_speedup"),)
        rounds_to = RoundsTo(percent=percent, trend=trend)
        speedup = Speedup(reference=FEDAVG, percent=percent, trend=trend)
        variants.append(Variation(f"rounds{share}", f"rounds to {share} %", printed=rounds, measure=rounds_to))
        variants.append(Variation(f"speedup{share}", f"speed-up to {share} %", printed=speed, measure=speedup))
    return (*variants, OVERHEAD)


def _target_columns(silo: Variation, device: Variation, dataset: str) -> tuple[Variation, ...]:
    """Returns the columns: cross-silo, cross-device and communication, which depends on the method alone."""
    keys = (("dataset", dataset), ("model", "LeNet-5"))
    return (
        dataclasses.replace(silo, name="silo", label="cross-silo", printed=(*silo.printed, settings.CROSS_SILO)),
        dataclasses.replace(
            device, name="device", label="cross-device", printed=(*device.printed, settings.CROSS_DEVICE)
        ),
        dataclasses.replace(silo, name="overhead", label="communication", printed=keys),
    )


TABLE2 = settings.item(
    name="ghb/table2",
    rows=settings.METHODS,
    columns=_target_columns(settings.LENET_SILO[0], settings.LENET_DEVICE[0], "CIFAR-10"),
    variants=_target_variants({70: 60.5, 80: 69.2, 90: 77.8}, standin.CENTRALIZED),
    table=("ghb", "2"),
)

TABLE9 = settings.item(
    name="ghb/table9",
    rows=SHOWN,
    columns=_target_columns(settings.LENET_SILO[2], settings.LENET_DEVICE[2], "CIFAR-100"),
    variants=_target_variants({60: 34.2, 70: 39.9, 80: 45.6}, FASHION_CENTRALIZED),
    table=("ghb", "9"),
    # FedDyn diverges there: no speed-up of it is printed.
)

# Table 5: large-scale data.
NETWORK = "MobileNetV2-GN*"
LANDMARKS, *INATURALIST = columns("ghb_large")
# The text: server rate 0.1 for FedAvgM, 1 for the rest.
STATED = {"fedavgm": "fedavgm:server_lr=0.1", "mime_momentum": "mime:server_lr=1,weighting=uniform"}
GRIDS = {row: [Fields(algorithm=f"{text},beta={beta}") for beta in ("0.99", "0.9")] for row, text in STATED.items()}
TABLE5 = settings.item(
    name="ghb/table5",
    rows=settings.picked("fedavg", "scaffold", "fedavgm", "mime_momentum", "fedhbm"),
    columns=(
        LANDMARKS,
        *INATURALIST,
        dataclasses.replace(LANDMARKS, name="overhead", label="communication", printed=(("model", NETWORK),)),
    ),
    variants=(Variation("accuracy", printed=(settings.ACCURACY,)), OVERHEAD),
    overrides=tuple(
        Override(Variation(f"{row}_stated", "", grid[0], Fields(), trend_replaces=True, grid=tuple(grid)), rows=(row,))
        for row, grid in GRIDS.items()
    ),
    table=("ghb", "5"),
)

# Table 6: one client that holds all and keeps its momentum from epoch to epoch; a round is an epoch. Text has neither
# momentum nor a schedule; the rate of Stack Overflow is the square root of a tenth.
CENTRAL_BASE = Variation(
    "centralized",
    paper=Fields.of(
        "num_clients=1 clients_per_round=1 partition=iid lr_schedule=cosine eval_every=10 final_evals=10 num_rounds=150"
    ),
    trend=Fields(final_evals=1, num_rounds=30, eval_every=1),
    printed=(settings.ACCURACY,),
)
CENTRALIZED = columns("ghb_centralized")
TABLE6 = settings.item(
    name="ghb/table6",
    base=CENTRAL_BASE,
    rows=(Variation("sgd", "SGD", printed=(("algorithm", "SGD"),)),),
    columns=CENTRALIZED,
    table=("ghb", "6"),
)
