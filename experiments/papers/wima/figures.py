"""WIMA, Figures 1 to 3: accuracy over rounds with a window, compared with SWA and with more clients per round."""

import dataclasses

from .. import standin
from ..items import Variation
from ..trajectories import Fields
from . import settings, tables

WITH_AND_WITHOUT = (Variation("base", "model"), settings.windowed("wima", "WIMA"))

# Figure 1
SHOWN = ("fedavg", "mime", "scaffold")
FIGURE1 = settings.item(
    name="wima/figure1",
    rows=tuple(row for row in settings.METHODS if row.name in SHOWN),
    columns=(settings.CIFAR100_0,),
    variants=WITH_AND_WITHOUT,
    draw="curves",
)

# Figure 2
STARTS = (0.25, 0.5, 0.75)
# Less than one of 10,000 rounds: a fork that much earlier takes the last model before the average starts into it.
BEFORE = 5e-5


def _swa(start: float, cycle: int) -> Variation:
    wrap = Fields(wrap=[f"swa:start={start},cycle={cycle}"])
    name, label = f"swa{round(100 * start)}_c{cycle}", f"SWA from {start:.0%}, c = {cycle}"
    return Variation(name, label, wrap, fork=start - BEFORE)


FIGURE2 = settings.item(
    name="wima/figure2",
    rows=settings.METHODS[:1],
    columns=(settings.CIFAR100_0,),
    variants=(*WITH_AND_WITHOUT, *(_swa(start, 10) for start in STARTS), _swa(0.75, 20)),
    draw="curves",
)

# Figure 3
CLIENTS = (10, 15, 20, 50)


def _column(alpha: Variation, federation: str, clients: int) -> Variation:
    """Returns a column of CIFAR-10, of a federation of its stand-in, with another number of clients per round."""
    federation = federation if clients == CLIENTS[0] else f"{federation}_m{clients}"
    return dataclasses.replace(
        alpha,
        name=f"{alpha.name}_m{clients}",
        label=f"{alpha.label}, m = {clients}",
        paper=alpha.paper | Fields(clients_per_round=clients),
        trend=standin.fields(federation),
        x=float(clients),
        group=alpha.label,
    )


FIGURE3 = settings.item(
    name="wima/figure3",
    rows=tables.TABLE5_ROWS,
    columns=tuple(
        _column(alpha, federation, clients)
        for alpha, federation in ((settings.CIFAR10_0, "alpha0"), (settings.CIFAR10_005, "alpha005"))
        for clients in CLIENTS
    ),
    variants=WITH_AND_WITHOUT,
    draw="sweep",
    axis="clients per round",
)
