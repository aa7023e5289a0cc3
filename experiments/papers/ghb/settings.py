"""Settings shared by the heavy-ball paper's tables and figures: federations, networks, methods (Table 7)."""

import dataclasses
import functools

from .. import standin
from ..items import Override, Variation, columns, methods, printed_at
from ..trajectories import Fields
from ..wima import settings as wima

SEEDS = (0, 1, 2, 3, 4)
# Mean of the last 100 rounds. Tables of rounds to a target read the same runs: an evaluation every five rounds, or
# every 50 (cross-device).
BASE = Variation("ghb", paper=Fields(eval_every=5, final_evals=100), trend=Fields(eval_every=5, final_evals=30))
# All tables and figures have these unless they name others.
item = functools.partial(standin.item, base=BASE, seeds=SEEDS)
CROSS_SILO, CROSS_DEVICE = ("variant", "cross_silo"), ("variant", "cross_device")
ACCURACY = ("metric", "test_accuracy_pct")

LENET = Fields(model="lenet5", augment="crop_flip", batch_size=64, client_lr=0.01, weight_decay=0.001)
RESNET = Fields(model="resnet20", augment="crop_flip", batch_size=64, client_lr=0.01, weight_decay=1e-5)
SILO = Fields(num_clients=100, clients_per_round=10)
# A window costs nothing but its evaluation; one in 50 rounds resolves rounds to a target well enough.
READ_OUTS = ("wima:window=5", "wima:window=20", "wima:window=100", "ema:decay=0.99", "swa:start=0.75")
DEVICE = Fields(num_clients=500, clients_per_round=5, eval_every=50, observe=READ_OUTS)
# The released code normalizes CIFAR-100 with CIFAR-10's constants.
DATA = {10: "cifar10", 100: "cifar100:constants=cifar10"}
ROUNDS = {10: 10_000, 100: 20_000}
MODELS = {"lenet5": "LeNet-5", "resnet20": "ResNet-20-GN"}
IID = 10_000
TOO_FEW = "images of CIFAR-100 are too few here to be split among 100 clients"


def cifar(classes: int, alpha: float, network: Fields, setting: Fields, trend: Fields | None) -> Variation:
    """Returns the column of a CIFAR set; without `trend` nothing stands in for it."""
    data_fields = Fields(dataset=DATA[classes], num_rounds=ROUNDS[classes], partition=f"dirichlet:alpha={alpha:g}")
    skew = {0.0: "noniid", float(IID): "iid"}.get(alpha, f"alpha{alpha:g}".replace(".", ""))
    return Variation(
        f"cifar{classes}_{skew}",
        f"CIFAR-{classes}, " + ("iid" if alpha == IID else f"alpha = {alpha:g}"),
        network | setting | data_fields,
        None if trend is None else trend | {"partition": data_fields["partition"]},
        trend_replaces=True,
        absent="" if trend is not None else TOO_FEW,
        printed=printed_at(
            f"CIFAR-{classes}", f"hsu_dirichlet:alpha={alpha:g};K={setting['num_clients']}", MODELS[network["model"]]
        ),
    )


def cifars(
    network: Fields, setting: Fields, federations: tuple[str, str], other: Fields | None
) -> tuple[Variation, ...]:
    """Returns the four columns of a network: both CIFAR sets, one class per client and iid.

    `federations` are those of the stand-in of CIFAR-10; `other` stands in for CIFAR-100 with one class per client.
    """
    one_class, iid = (standin.fields(federation) for federation in federations)
    return (
        cifar(10, 0, network, setting, one_class),
        cifar(10, IID, network, setting, iid),
        cifar(100, 0, network, setting, other),
        cifar(100, IID, network, setting, None),
    )


FASHION_0 = standin.fields("fashion_alpha0")
LENET_SILO = cifars(LENET, SILO, ("alpha0", "iid"), FASHION_0)
LENET_DEVICE = cifars(LENET, DEVICE, ("alpha0_m3", "iid_m3"), None)
RESNET_SILO = cifars(RESNET, SILO, ("alpha0", "iid"), FASHION_0)
*SHAKESPEARE, STACKOVERFLOW = columns("ghb")

# At trend scale, methods of both papers are run as in WIMA's tables, and so only once. Server momentum has the paper's
# best value where it is legible, and that of the released code.
TREND = {row.name: row.fields("trend") for row in wima.METHODS}


def _rows(group: str) -> tuple[Variation, ...]:
    own = methods(group)
    trends = (TREND[row.name] if row.trend is None else row.trend for row in own)
    return tuple(dataclasses.replace(row, trend=trend, trend_replaces=True) for row, trend in zip(own, trends))


METHODS, (LOCAL_GHB, NESTEROV) = _rows("ghb"), _rows("ghb_added")
BY_NAME = {row.name: row for row in (*METHODS, LOCAL_GHB)}


def picked(*names: str) -> tuple[Variation, ...]:
    """Returns the rows with these names, in their order."""
    return tuple(BY_NAME[name] for name in names)


def _where(group: str, *columns: str) -> tuple[Override, ...]:
    """Returns the overrides of a group's hyper-parameters in some columns; without columns, in all."""
    return tuple(
        Override(
            dataclasses.replace(row, name="_".join((row.name, *columns)), trend=Fields(), trend_replaces=True),
            rows=(row.name,),
            columns=columns,
        )
        for row in methods(group)
    )


# ResNet-20's column of Table 7, for all tables and figures with that network.
OF_RESNET = _where("ghb_resnet")
OF_SHAKESPEARE = _where("ghb_shakespeare", "shakespeare_noniid", "shakespeare_iid")
OF_STACKOVERFLOW = _where("ghb_stackoverflow", "stackoverflow")
