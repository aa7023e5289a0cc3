"""WSM, Table 3.3: GroupNorm or BatchNorm alone, with and without WSM."""

import dataclasses

from ..claims import Claim
from ..items import Entry, Item
from ..trajectories import Fields
from .settings import ASSUMED, BASE, CIFAR10_FIELDS, DIGITS, PARTITION, SEEDS, VARIANTS, at_rate

RATES = ("0.3", "0.1", "0.07", "0.05", "0.03", "0.01", "0.007", "0.005")
# At trend scale the rate of Figures 3.4 and 3.5, and a ResNet-18 with an eighth of its channels on the digits.
TREND_RATE = "0.05"
FEWER = "one of the eight rates fits into five minutes on two cores"
ROUNDS, WIDTH = 60, 8
STANDIN = f"Digits, ResNet-18 with an eighth of its channels, 4 of 40 clients, {ROUNDS} rounds, rate {TREND_RATE}."


def of_norm(norm: str) -> Entry:
    """Returns the column of a norm, 'gn' or 'bn'."""
    keys = (("dataset", "CIFAR-10"), ("partition", PARTITION), ("model", f"ResNet-18-{norm.upper()}"))
    label = {"gn": "GroupNorm", "bn": "BatchNorm"}[norm]
    fields = CIFAR10_FIELDS | {"model": f"resnet18:variant=wsm,norm={norm}"}
    narrow = Fields(model=f"resnet18:variant=plain,norm={norm},width={WIDTH}", num_rounds=ROUNDS, augment="none")
    return Entry(norm, label, fields, DIGITS | narrow, printed=keys)


def _row(rate: str) -> Entry:
    return dataclasses.replace(at_rate(rate), absent="" if rate == TREND_RATE else FEWER)


ITEM = Item(
    name="wsm/table3_3",
    title="FedAvg with and without WSM, ResNet-18 with one kind of norm, CIFAR-10",
    base=dataclasses.replace(BASE, paper=BASE.paper | {"num_rounds": 8000}),
    rows=tuple(_row(rate) for rate in RATES),
    columns=(of_norm("gn"), of_norm("bn")),
    variants=VARIANTS,
    table=("wsm", "3.3"),
    seeds=SEEDS,
    claims=(
        Claim(
            "With BatchNorm WSM is more accurate than cross-entropy.",
            (("column", "bn"), ("variant", "wsm")),
            (("column", "bn"), ("variant", "base")),
        ),
        Claim(
            "With GroupNorm cross-entropy is more accurate than WSM.",
            (("column", "gn"), ("variant", "base")),
            (("column", "gn"), ("variant", "wsm")),
        ),
    ),
    assumed=(
        *ASSUMED,
        "GroupNorm has two groups, as in the mixed network. At rate 0.3 the cells of BatchNorm, at 0.007 those of "
        "GroupNorm are likely to be swapped in print.",
    ),
    standin=STANDIN,
    cost="32 runs of 8,000 rounds of ResNet-18: for a GPU",
)
