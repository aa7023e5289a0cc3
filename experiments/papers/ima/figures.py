"""IMA, Figures 5 (c), 6 and 7 (a, b): accuracy over rounds, and FedAvg with and without IMA against one parameter."""

from typing import Any

from ..items import Item, Variation
from ..trajectories import Fields
from . import settings
from .tables import STARTS

# Figure 5 (c)
FIGURE5 = settings.item(
    name="ima/figure5",
    base=settings.PLAIN,
    rows=(settings.FEDAVG,),
    columns=(Variation("shards", "two shards per client"),),
    variants=(Variation("base", "model"), settings.averaging("ima", "IMA")),
    draw="curves",
)


# Figures 6 and 7: one parameter along the axis.
def _sweep(name: str, axis: str, columns: tuple[Variation, ...], **more: Any) -> Item:
    """Returns a sweep of FedAvg on CIFAR-10 with Dirichlet shares."""
    return settings.item(
        name=name, base=settings.SWEPT, rows=(settings.FEDAVG,), columns=columns, draw="sweep", axis=axis, **more
    )


# Figure 6: two lines a panel.
COMPARED = (Variation("base", "without IMA"), settings.averaging("ima", "with IMA"))
ALPHAS = (0.05, 0.1, 0.3, 0.5, 1.0)
# So few examples need larger shares, if every client is to have some.
TREND_ALPHAS = {0.05: 0.08}


def _at_alpha(alpha: float) -> Variation:
    trend = Fields(partition=f"yurochkin:alpha={TREND_ALPHAS.get(alpha, alpha)}{settings.FEW}")
    paper = Fields(partition=f"yurochkin:alpha={alpha}")
    return Variation(f"alpha{alpha:g}", f"alpha = {alpha:g}", paper, trend, x=alpha)


FIGURE6A = _sweep("ima/figure6a", "Dirichlet alpha", tuple(_at_alpha(alpha) for alpha in ALPHAS), variants=COMPARED)

# Of 100 clients.
COHORTS = (10, 20, 30, 40, 50)
FIGURE6B = _sweep(
    "ima/figure6b",
    "share of clients per round",
    tuple(Variation(f"share{n}", f"{n}%", Fields(clients_per_round=n), x=n / 100) for n in COHORTS),
    variants=COMPARED,
)

EPOCHS = (3, 5, 7, 9, 11, 13, 15, 17)
FIGURE6C = _sweep(
    "ima/figure6c",
    "local epochs",
    tuple(Variation(f"epochs{n}", f"E = {n}", Fields(local_epochs=n), x=float(n)) for n in EPOCHS),
    variants=COMPARED,
)

FIGURE7A = _sweep(
    "ima/figure7a",
    "first averaged round of 400",
    tuple(
        settings.averaging(f"start{start}", f"from {start}", start=share, x=float(start))
        for start, share in STARTS.items()
    ),
)

WINDOWS = (1, 3, 5, 10, 20)
FIGURE7B = _sweep(
    "ima/figure7b",
    "window P",
    tuple(settings.averaging(f"w{size}", f"P = {size}", window=size, x=float(size)) for size in WINDOWS),
)
