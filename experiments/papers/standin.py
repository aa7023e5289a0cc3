"""Stand-ins at trend scale: federations of CIFAR-10 at 16x16 and others, and the searched rate of every method.

Rates are searched per federation and method; a cell without one is absent. To add a method, add lines to rates.csv.
"""

import collections
from collections.abc import Iterable
from typing import Any

from .items import Item, Override, Variation
from .remarks import FOLDER, best_of, lines_of
from .trajectories import Fields

# 100 images per client; with 10 clients a round a client takes part 100 times on average.
CIFAR16 = Fields.of(
    "dataset=cifar10:size=16,per_class=1000 num_clients=100 model=lenet5:channels=16-32,dense=64 "
    "num_rounds=1000 batch_size=20 eval_every=20 final_evals=50 eval_examples=5000"
)
# Accuracy (%) of this network trained centrally on these images, mean of five seeds (`ghb/table6`, cifar10_lenet5):
# targets of 'rounds to a target' are shares of it. The rate of these runs is the best of 0.005, 0.01, 0.02 and 0.05
# by accuracy on a fifth of the images, seed 100 (53.5, 52.9, 51.6 and 51.0 %).
CENTRALIZED = 54.1
# Fashion-MNIST: two hidden layers of 200; a fifth of the test images, as windows are read in each of the last rounds.
FASHION = Fields.of(
    "dataset=fmnist eval_examples=2000 num_clients=100 clients_per_round=10 model=mlp num_rounds=100 batch_size=50"
)
# The handwritten digits: a hidden layer of 64.
DIGITS = Fields.of("dataset=digits num_clients=100 model=digits_mlp num_rounds=150 local_epochs=3 batch_size=7")

ALPHAS = ("0", "0.05", "0.1", "0.2", "0.4", "0.6")
PARTITIONS = {f"alpha{alpha}".replace(".", ""): f"dirichlet:alpha={alpha}" for alpha in ALPHAS} | {
    "iid": "dirichlet:alpha=10000"
}
# IMA's clients, rounds and epochs.
IMA16 = CIFAR16 | Fields.of("num_rounds=400 clients_per_round=10 local_epochs=5 batch_size=50 final_evals=20")
# Clients per round; names of federations have it unless it is the first.
COHORTS = (10, 3, 15, 20, 50)
FEDERATIONS = {
    (name if cohort == COHORTS[0] else f"{name}_m{cohort}"): CIFAR16
    | Fields(partition=partition, clients_per_round=cohort)
    for cohort in COHORTS
    for name, partition in PARTITIONS.items()
} | {
    "fashion_alpha0": FASHION | Fields(partition="dirichlet:alpha=0"),
    "fashion_alpha005": FASHION | Fields(partition="dirichlet:alpha=0.05"),
    "fashion_alpha05": FASHION | Fields(partition="dirichlet:alpha=0.5"),
    # With IMA's momentum and decays; with WSM's skew and local epochs. Rates that were searched with IMA or WSM itself
    # are those of shards_ima, yurochkin_ima, fashion_shards_ima and fashion_20_wsm.
    "shards": IMA16 | Fields(partition="shards:per_client=2"),
    # Evaluated often, as rounds to a target are read off its runs.
    "yurochkin": IMA16 | Fields(partition="yurochkin:alpha=0.1,min_size=2", eval_every=4),
    "fashion_shards": FASHION | Fields(partition="shards:per_client=2", local_epochs=1),
    "fashion_20": FASHION | Fields.of("num_clients=20 clients_per_round=2 num_rounds=60 batch_size=64 augment=none"),
    "digits_m3": DIGITS | Fields(partition="dirichlet:alpha=0", clients_per_round=3),
    "digits_m10": DIGITS | Fields(partition="dirichlet:alpha=0", clients_per_round=10),
    "digits_m20": DIGITS | Fields(partition="dirichlet:alpha=0", clients_per_round=20),
    "mnist_writers": Fields.of(
        "dataset=mnist_writers partition=natural clients_per_round=10 model=mlp num_rounds=100 batch_size=10 "
        "batching=repeat"
    ),
}

# rates.csv: what was tried, and the mean accuracy (%) over the last 50 of 1,000 rounds (IMA's CIFAR-10: 20 of 400;
# Fashion-MNIST: 30 of 100 or 60, IMA's shards 20; MNIST: 30 of 100; digits: 30 of 150) on examples that clients hold
# out (a fifth of each, WSM's and the writers' a tenth; but for the writers, as many local steps as without), over
# `seeds` seeds from 100 on. Rates, 0.0002, 0.0005, 0.001 and so on, give the best a lower and a higher neighbor; two
# other values of a coefficient follow at the best rate (but for figures of spans and cohorts of 15 to 50, the best's
# neighbors in both). Settings with three seeds (GHB: four) were the best two of seed 100, or within half a point; the
# best of them is run. 0: diverged. alpha0_tau1 ...: GHB's rates for spans (`ghb/figure3`).
TRIED = lines_of(FOLDER / "rates.csv")
# Federation -> method -> algorithm and local rate, the most accurate with most seeds.
RATES: dict[str, dict[str, Fields]] = collections.defaultdict(dict)
for (_federation, _method), _best in best_of(TRIED, "federation", "method").items():
    RATES[_federation][_method] = Fields(algorithm=_best["algorithm"], client_lr=float(_best["rate"]))
# Method -> its name in tables of our own.
LABELS = {line["method"]: line["label"] for line in TRIED}

# The stand-in of CIFAR-10; how clients train goes between the braces.
IN_WORDS = (
    "CIFAR-10: its images averaged to 16x16, the first 1,000 of each class, over 100 clients; LeNet-5 with "
    "convolutions of 16 and 32 channels and one hidden layer of 64; {}; accuracies on 5,000 test images. Rates, and "
    "some coefficients, are the best of papers/rates.csv for the method and clients, on examples that these hold out."
)
TEXT = IN_WORDS.format("batches of 20, one local epoch, 1,000 rounds")


def fields(federation: str) -> Fields:
    """Returns the fields of a federation of the stand-in, with FedAvg's rate if it was searched."""
    rates = RATES.get(federation, {})
    rate = Fields(client_lr=rates["fedavg"]["client_lr"]) if "fedavg" in rates else Fields()
    return FEDERATIONS[federation] | rate


def federation_of(column: Variation) -> str | None:
    """Returns the federation of the stand-in that a column has at trend scale; None if it has another one."""
    return next((name for name in FEDERATIONS if column.trend == fields(name)), None)


def _overrides(
    columns: Iterable[Variation], rows: Iterable[Variation], variants: Iterable[Variation]
) -> tuple[Override, ...]:
    """Returns the overrides of a table's cells of the stand-in; columns with other data at trend scale are left alone.

    Every cell has its searched algorithm and rate, those of its variant if it was searched by itself, and is absent
    without one. Read-outs on CIFAR-10 have the windows of paper scale, for which it has the rounds.
    """
    own = {column.name: name for column in columns if (name := federation_of(column)) is not None}
    methods = tuple(rows)
    rates = [
        Override(_rate(place, row), rows=(row.name,), columns=(name,), variants=only)
        for name, federation in own.items()
        for place, only in [(federation, ()), *((f"{federation}_{each.name}", (each.name,)) for each in variants)]
        for row in methods
        if not only or place in RATES
    ]
    long = tuple(name for name, at in own.items() if FEDERATIONS[at]["dataset"] == CIFAR16["dataset"])
    windows = [
        Override(Variation(f"{variant.name}_own", read=variant.read), columns=long, variants=(variant.name,))
        for variant in variants
        if variant.read and long
    ]
    return (*rates, *windows)


def item(
    rows: tuple[Variation, ...],
    columns: tuple[Variation, ...],
    variants: tuple[Variation, ...] = (Variation("base"),),
    overrides: tuple[Override, ...] = (),
    cifar16: str = TEXT,
    **about: Any,
) -> Item:
    """Returns an Item whose cells of the stand-in have searched algorithms and rates, which `overrides` precede."""
    own = (*overrides, *_overrides(columns, rows, variants))
    text = described(columns, rows, cifar16)
    return Item(rows=rows, columns=columns, variants=variants, overrides=own, cifar16=text, **about)


def _rate(federation: str, row: Variation) -> Variation:
    """Returns the algorithm and rate of a row in a federation, or their absence."""
    name = f"{federation}_{row.name}"
    if row.name not in RATES.get(federation, {}):
        return Variation(name, absent="no rate was searched")
    return Variation(name, trend=RATES[federation][row.name])


def described(columns: Iterable[Variation], rows: Iterable[Variation], text: str = TEXT) -> str:
    """Returns a stand-in in words, with the methods of a table that are absent for want of a rate."""
    titles = {row.name: row.title for row in rows}
    absent = []
    for column in columns:
        federation = federation_of(column)
        known = RATES.get(federation, {}) if federation else titles
        without = [title for name, title in titles.items() if name not in known]
        if without:
            absent.append(f"{column.title}: {'all' if len(without) == len(titles) else ', '.join(without)}")
    return text + (f" Absent, because no rate was searched: {'; '.join(absent)}." if absent else "")
