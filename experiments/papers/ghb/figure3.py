"""GHB, Figure 3: how many rounds the momentum spans."""

import dataclasses

from ... import main_job
from ..claims import Claim
from ..items import Entry, Item
from ..trajectories import Fields
from . import methods
from .methods import BY_NAME
from .settings import BASE, RESNET_SILO, SEEDS, TREND_SEEDS

# Span -> the one that stands in for it where 3 of 100 clients take part, not 10: 33 is 1 / C there.
SPANS = {1: 1, 2: 7, 5: 17, 10: 33, 20: 66, 40: 132}
# Where a span of 1 fails: the setting of the main job.
JUMPY = Fields({name: value for name, value in main_job.SETTING.items() if name != "seeds"}) | {"eval_every": 10}
# Momentum of the released configuration.
BETA = 0.9


def _at(column: Entry, tau: int) -> Entry:
    span = Fields(algorithm=f"ghb:tau={tau},beta={BETA}")
    trend = JUMPY | {"algorithm": f"ghb:tau={SPANS[tau]},beta={BETA}"}
    return dataclasses.replace(
        column,
        name=f"{column.name}_tau{tau}",
        label=f"{column.label}, tau = {tau}",
        paper=column.paper | span,
        trend=trend,
        absent=column.absent if column.name == "cifar10_noniid" else "one stand-in shows it",
        x=float(tau),
        group=column.label,
    )


# The flat lines are the same runs at every span.
FLAT = tuple(dataclasses.replace(BY_NAME[name], printed=()) for name in ("fedavg", "local_ghb", "fedhbm"))


def _claims():
    best, one, plain = "cifar10_noniid_tau10", "cifar10_noniid_tau1", ("row", "fedavg")
    yield Claim(
        "tau = 10 is better than tau = 1.", (("row", "ghb"), ("column", best)), (("row", "ghb"), ("column", one))
    )
    yield Claim("tau = 10 is better than FedAvg.", (("row", "ghb"), ("column", best)), (plain, ("column", best)))
    yield Claim(
        "tau = 1 is no better than FedAvg, by a point at most.",
        (plain, ("column", one)),
        (("row", "ghb"), ("column", one)),
        by=-1.0,
    )


ITEM = Item(
    name="ghb/figure3",
    title="Generalised heavy-ball momentum over different spans, one class per client, ResNet-20",
    base=BASE,
    rows=(Entry("ghb", "GHB"), *FLAT),
    columns=tuple(_at(column, tau) for column in (RESNET_SILO[0], RESNET_SILO[2]) for tau in SPANS),
    overrides=methods.RESNET,
    draw="sweep",
    axis="tau",
    seeds=SEEDS,
    trend_seeds=TREND_SEEDS,
    claims=tuple(_claims()),
    assumed=(
        f"The spans are not stated: {', '.join(map(str, SPANS))}; neither is the network.",
        f"GHB's beta is the released configuration's, {BETA}.",
    ),
    standin=f"CIFAR-10: digits, a small CNN, 3 of 100 clients, 400 rounds; spans {', '.join(map(str, SPANS.values()))} "
    "for those of 10 of 100 clients; CIFAR-100: nothing.",
    cost="six spans of GHB on two data sets, 5 seeds x 10,000 or 20,000 rounds of ResNet-20, and Table 10's runs",
)
