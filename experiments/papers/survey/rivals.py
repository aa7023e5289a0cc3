"""Rivals of averaging: flat minima, losses against drift and a corrected Muon beside FedAvg, FedHBM, GHB, MimeMom."""

import dataclasses
import pathlib

from fedwin.data.long_tail import most_of_class
from fedwin.data.sources.cifar_names import CIFAR10

from .. import standin
from ..items import Item, Override, Variation, of_cells, searched
from ..measures import MeanLast
from ..trajectories import Fields
from ..wima.settings import BASE
from .cifar16 import WINDOWS

FEDERATION = standin.CIFAR16 | Fields.of(
    "num_clients=250 clients_per_round=10 num_rounds=400 eval_examples=2000 eval_every=25"
)
ROWS = (
    *(Variation(name, standin.LABELS[name]) for name in ("fedavg", "fedhbm", "ghb", "mime_momentum")),
    *(
        Variation(label.lower(), label)
        for label in ("MoFedSAM", "FedSMOO", "FedLESAM", "MOON", "FedNTD", "FedLC", "FedDecorr")
    ),
    Variation("fedmuon_bc", "FedMuon, corrected"),
)
COLUMNS = (
    Variation("alpha0", "one class per client", Fields(partition="dirichlet:alpha=0")),
    Variation("alpha03", "alpha = 0.3", Fields(partition="dirichlet:alpha=0.3")),
    Variation("noise", "iid, noisy clients", Fields(partition="iid", client_shift="noise:std=0.5,levels=rising")),
)
TAIL = Fields(dataset="cifar10:size=16", partition="dirichlet:alpha=0.3", num_clients=212, imbalance=50.0)
PARTS = (
    Variation("tail_all", "all classes", TAIL),
    *(
        Variation(f"tail_{part}", part, TAIL, measure=MeanLast(metric=f"accuracy_{part}", name=f"accuracy, {part}"))
        for part in ("head", "middle", "tail")
    ),
)
CLASSES = tuple(
    Variation(
        f"tail_class{number}",
        f"{name} ({most_of_class(50_000, 10, 50, number):,})",
        TAIL,
        measure=MeanLast(metric=f"accuracy_class{number}", name=f"accuracy, {name}"),
    )
    for number, name in enumerate(CIFAR10)
)
# The best of those that were tried, by the model's accuracy (%) on held-out examples.
SETTINGS = searched(pathlib.Path(__file__).with_suffix(".csv"))
# The parts of the long tail are of the same runs.
OF_TAIL = tuple(Override(Variation("tail", paper=SETTINGS[row.name, "tail"]), rows=(row.name,)) for row in ROWS)

TABLE9 = Item(
    name="survey/table9",
    base=Variation("rivals", paper=BASE.fields("trend") | FEDERATION),
    rows=ROWS,
    columns=COLUMNS,
    variants=WINDOWS,
    overrides=of_cells(SETTINGS),
    paired=True,
)
TABLE10 = dataclasses.replace(TABLE9, name="survey/table10", columns=PARTS, overrides=OF_TAIL)
TABLE11 = dataclasses.replace(
    TABLE10,
    name="survey/table11",
    columns=CLASSES,
    variants=tuple(variant for variant in WINDOWS if variant.name in ("base", "wima100")),
    paired=False,
)

# What a window remembers of an attack that has ended, and of labels that have changed.
READOUTS = (
    Variation("base", "model"),
    *(Variation(f"wima{size}", f"WIMA, W = {size}", read=f"wima:window={size}") for size in (5, 20, 100)),
    Variation("ema", "EMA", read="ema"),
)
FEDAVG = (Variation("fedavg", standin.LABELS["fedavg"], SETTINGS["fedavg", "alpha03"]),)
OFTEN = FEDERATION | Fields.of("partition=dirichlet:alpha=0.3 num_rounds=600 eval_every=10")
ATTACKED = OFTEN | Fields(attack="backdoor:clients=0.04,boost=5,stop=300")
FIGURE3 = Item(
    name="survey/figure3",
    base=Variation("backdoor", paper=BASE.fields("trend") | ATTACKED),
    rows=FEDAVG,
    columns=(
        Variation("accuracy", "accuracy"),
        Variation("success", "attack success", measure=MeanLast(metric="attack_success", name="attack success")),
    ),
    variants=(*READOUTS, Variation("honest", "model, nobody attacks", Fields(attack="backdoor:clients=0"))),
    draw="curves",
)
FIGURE4 = dataclasses.replace(
    FIGURE3,
    name="survey/figure4",
    base=Variation("drift", paper=BASE.fields("trend") | OFTEN),
    columns=(
        Variation("swap", "labels of four classes exchanged", Fields(drift="swap:round=300,classes=4")),
        Variation("rotate", "images rotated by 90 degrees", Fields(drift="rotate:round=300,degrees=90,rounds=100")),
    ),
    variants=READOUTS,
)
