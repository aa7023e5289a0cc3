"""WSM: accuracy over rounds and by a parameter (Figures 3.2 to 3.5), forgetting (2.2, A.1, A.2), labels (3.1)."""

import dataclasses

from ..items import Analysis, Item, Override, Variation
from ..trajectories import Fields
from . import settings

# Figure 3.2: column and loss -> the best rate as printed in Table 3.1, and that at trend scale.
BEST = {
    ("cifar10", "base"): (0.07, 0.1),
    ("cifar10", "wsm"): (0.1, 0.1),
    ("cifar100", "base"): (0.03, 0.1),
    ("cifar100", "wsm"): (0.07, 0.1),
    ("femnist", "base"): (0.01, 0.3),
    ("femnist", "wsm"): (0.03, 0.3),
}
FIGURE3_2 = settings.item(
    name="wsm/figure3_2",
    rows=(Variation("fedavg", "FedAvg"),),
    columns=(settings.CIFAR10, settings.CIFAR100, settings.FEMNIST),
    variants=settings.VARIANTS,
    overrides=tuple(
        Override(
            Variation(f"best_{column}_{variant}", paper=Fields(client_lr=rate), trend=Fields(client_lr=trend)),
            columns=(column,),
            variants=(variant,),
        )
        for (column, variant), (rate, trend) in BEST.items()
    ),
    draw="curves",
)

# Figure 3.3: CIFAR-10, one parameter along the axis.
FEWER = "fewer values fit into five minutes on two cores"
SWEPT = Variation(
    "swept",
    paper=settings.BASE.paper | settings.CIFAR10.paper,
    trend=(settings.BASE.trend or Fields()) | (settings.CIFAR10.trend or Fields()),
    measure=settings.BASE.measure,
)


def _sweep(panel: str, axis: str, columns: tuple[Variation, ...]) -> Item:
    return settings.item(
        name=f"wsm/figure3_3{panel}",
        base=SWEPT,
        rows=(Variation("fedavg", "FedAvg"),),
        columns=columns,
        variants=settings.VARIANTS,
        draw="sweep",
        axis=axis,
    )


ALPHAS, TREND_ALPHAS = (0.01, 0.1, 0.2, 0.5, 1, 10, 100), (0.01, 0.1, 0.5, 10)
SHARES, TREND_SHARES = (0.01, 0.05, 0.1, 0.2, 0.4, 0.6), (0.01, 0.05, 0.1, 0.2)
EPOCHS = (1, 3, 5, 10)
CLIENTS = 100
SWEEPS = (
    _sweep(
        "a",
        "Dirichlet alpha",
        tuple(
            dataclasses.replace(settings.at_alpha(alpha), absent="" if alpha in TREND_ALPHAS else FEWER, x=float(alpha))
            for alpha in ALPHAS
        ),
    ),
    _sweep(
        "b",
        "share of clients per round",
        tuple(
            Variation(
                f"share{round(100 * share)}",
                f"{share:.0%}",
                Fields(clients_per_round=round(share * CLIENTS)),
                absent="" if share in TREND_SHARES else FEWER,
                x=share,
            )
            for share in SHARES
        ),
    ),
    _sweep(
        "c",
        "local epochs",
        tuple(Variation(f"epochs{n}", f"E = {n}", Fields(local_epochs=n), x=float(n)) for n in EPOCHS),
    ),
)

# Figures 3.4 and 3.5: Table 3.3's networks. The rate is the best one of GroupNorm with cross-entropy, and of BatchNorm
# with WSM.
RATE = float(settings.NORM_RATE)


def _over_rounds(number: int, rounds: int, absent: str = "") -> Item:
    """Returns Figure 3.4 or 3.5, which differ in their number of rounds; `absent`: why one is not drawn below that."""
    return settings.item(
        name=f"wsm/figure3_{number}",
        base=dataclasses.replace(settings.BASE, paper=settings.BASE.paper | {"num_rounds": rounds}),
        rows=(Variation("fedavg", "FedAvg", Fields(client_lr=RATE), absent=absent),),
        columns=settings.NORM_COLUMNS,
        variants=settings.VARIANTS,
        draw="curves",
    )


FIGURE3_4 = _over_rounds(4, 4000)
FIGURE3_5 = _over_rounds(5, 8000, "its stand-ins would be those of Figure 3.4")


# Figures of trained models.
def _forgetting(number: str, round: int, rounds: int = 4000) -> Analysis:
    """Returns what clients forget of each other's data after a round, with and without WSM."""
    short = {} if rounds == SWEPT.paper["num_rounds"] else {"num_rounds": rounds}
    return Analysis(
        name=f"wsm/figure{number}",
        kind="forgetting",
        base=SWEPT.merged(**short),
        runs=(Variation("base", "cross-entropy"), Variation("wsm", "WSM", Fields(loss="wsm"))),
        at=(round / rounds,),
    )


FORGETTING = (
    _forgetting("2_2", 2800),
    # A separate run that ends there: the long one would have to keep a checkpoint of every round.
    _forgetting("A_1", 1, rounds=1),
    _forgetting("A_2", 4000),
)
LABELS = Analysis(
    name="wsm/figure3_1",
    kind="labels",
    base=Variation("partitioned", paper=settings.BASE.paper | settings.CIFAR10.paper, trend=settings.CIFAR10.trend),
    runs=tuple(settings.at_alpha(alpha) for alpha in (0.01, 0.1, 0.5, 100)),
)
