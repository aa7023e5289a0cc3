"""IMA, figures of trained models: planes (1, 8, 9, 10), factors of the loss (2 to 4) and lines (5 b, 7 c)."""

import dataclasses
from typing import Any

from ..items import Analysis, Variation
from ..trajectories import Fields
from . import settings

# Every one of 10 clients in every round.
CROSS_SILO = settings.PLAIN.merged(num_clients=10, clients_per_round=10)
# Figure 8 has half as many rounds.
CROSS_SILO_HALF = CROSS_SILO.merged(num_rounds=200)
# Shares of the rounds: early, in the middle and late.
STAGES = (0.05, 0.5, 1.0)


def _plane(
    panel: str, base: Variation = settings.PLAIN, run: Variation = settings.FEDAVG, clients: int = 0, **more: Any
) -> Analysis:
    """Returns the plane through models of some clients of the next round or, without any, through three checkpoints."""
    name, options = f"ima/figure{panel}", Fields(clients=clients) if clients else Fields()
    coarse = options | {"points": 15}
    return settings.analysis(
        name=name, kind="plane", base=base, runs=(run,), options=options, trend_options=coarse, **more
    )


# Figures 1 and 8: the same plane at three stages; 10 clients that all take part in Figure 8.
FIGURE1, FIGURE8 = (
    tuple(_plane(f"{number}{panel}", base, clients=3, at=(at,)) for panel, at in zip("abc", STAGES, strict=True))
    for number, base in ((1, settings.PLAIN), (8, CROSS_SILO_HALF))
)
# Forked, so that the run that other figures need keeps checkpoints of few rounds.
FIGURE1D = _plane("1d", run=Variation("fedavg", "FedAvg", fork=0.7), ends=(2, 1))
FIGURE9 = _plane("9", at=STAGES)

# Figure 10: the same plane on six columns of Table I.
# A residual network with GroupNorm that two cores can train.
RESIDUAL = settings.DIGITS | {"model": "resnet20"}


def _of_column(column: Variation, standin: Fields | None = None) -> Variation:
    """Returns a base of Figure 10: a column of Table I without decay of the rate, 400 rounds."""
    constant = {"lr_decay": 0.0}
    trend = settings.BASE.fields("trend") | (standin or column.trend or Fields()) | constant
    return Variation(
        column.name, paper=settings.BASE.paper | column.paper | constant | {"num_rounds": 400}, trend=trend
    )


PANELS = {
    "a": _of_column(settings.FMNIST_SHARDS, settings.SMALL_FASHION | {"partition": settings.SHARDS}),
    "b": _of_column(settings.FMNIST_DIRICHLET, settings.SMALL_FASHION | {"partition": settings.DIRICHLET}),
    "c": _of_column(settings.CNN_SHARDS),
    "d": _of_column(settings.CNN_DIRICHLET),
    "e": _of_column(settings.RESNET_SHARDS, RESIDUAL | {"partition": settings.SHARDS}),
    "f": _of_column(settings.RESNET_DIRICHLET, RESIDUAL | {"partition": settings.DIRICHLET + settings.FEW}),
}
FIGURE10 = tuple(_plane(f"10{panel}", base, clients=3) for panel, base in PANELS.items())


# Figures 2 to 4: five factors of the loss, with and without decay of the rate.
def _factors(number: int, *panels: str) -> Analysis:
    """Returns one of the three figures, which show different factors of the same runs."""
    return settings.analysis(
        name=f"ima/figure{number}",
        kind="factors",
        base=CROSS_SILO,
        runs=(
            Variation("decay0", "without decay", Fields(algorithm="fedavg")),
            Variation("decay1", "decay 0.01", Fields(algorithm="fedavg", lr_decay=0.01)),
        ),
        at=tuple(number / 20 for number in range(1, 21)),
        options=Fields(replicas=2, count=2000),
        trend_options=Fields(replicas=2, count=300),
        shows=panels,
    )


FACTORS = (
    _factors(2, "bias (squared error)", "error (%)"),
    _factors(3, "locality ‖w_k - w‖₂", "test loss of the mean"),
    _factors(4, "variance", "covariance (linear CKA)"),
)

# Figures 5 (b) and 7 (c): all test images, and as many training images, one fixed draw.
LINE = Fields(count=10_000)
FIGURE5B = settings.analysis(
    name="ima/figure5b",
    kind="line",
    base=settings.PLAIN,
    runs=(settings.FEDAVG,),
    at=(0.75, 1.0),
    options=LINE,
    trend_options=Fields(),
)
FIGURE7C = settings.analysis(
    name="ima/figure7c",
    kind="line",
    base=settings.SWEPT.merged(**settings.FEDAVG.paper),
    runs=(dataclasses.replace(settings.FEDAVG, label="without IMA"), settings.averaging("ima", "with IMA")),
    options=LINE,
    trend_options=Fields(),
)
