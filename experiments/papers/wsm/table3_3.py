"""WSM, Table 3.3: GroupNorm or BatchNorm alone, with and without WSM."""

import dataclasses

from ..claims import Claim
from ..items import Entry, Item
from .settings import ASSUMED, BASE, CIFAR10_FIELDS, PARTITION, SEEDS, VARIANTS, at_rate

RATES = ("0.3", "0.1", "0.07", "0.05", "0.03", "0.01", "0.007", "0.005")
WHY = "the only networks with BatchNorm have eleven million parameters: no run of use fits into five minutes"


def of_norm(norm: str) -> Entry:
    """Returns the column of a norm, 'gn' or 'bn'."""
    keys = (("dataset", "CIFAR-10"), ("partition", PARTITION), ("model", f"ResNet-18-{norm.upper()}"))
    label = {"gn": "GroupNorm", "bn": "BatchNorm"}[norm]
    fields = CIFAR10_FIELDS | {"model": f"resnet18:variant=wsm,norm={norm}"}
    return Entry(norm, label, fields, absent=WHY, printed=keys)


ITEM = Item(
    name="wsm/table3_3",
    title="FedAvg with and without WSM, ResNet-18 with one kind of norm, CIFAR-10",
    base=dataclasses.replace(BASE, paper=BASE.paper | {"num_rounds": 8000}),
    rows=tuple(at_rate(rate) for rate in RATES),
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
    standin="Nothing.",
    cost="32 runs of 8,000 rounds of ResNet-18: for a GPU",
)
