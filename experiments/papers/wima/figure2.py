"""WIMA, Figure 2: the window beside SWA started at different rounds."""

from ..items import Entry, Item
from ..trajectories import Fields
from .settings import BASE, CIFAR100_0, METHODS, TREND_WINDOW, WINDOW

STARTS = (0.25, 0.5, 0.75)


def _swa(start: float, cycle: int) -> Entry:
    wrap = Fields(wrap=[f"swa:start={start},cycle={cycle}"])
    return Entry(f"swa{round(100 * start)}_c{cycle}", f"SWA from {start:.0%}, c = {cycle}", wrap, fork=start, lead=1)


ITEM = Item(
    name="wima/figure2",
    title="WIMA beside SWA from different rounds on, CIFAR-100, one class per client",
    base=BASE,
    rows=METHODS[:1],
    columns=(CIFAR100_0,),
    variants=(
        Entry("base", "model"),
        Entry("wima", "WIMA", read=WINDOW, trend_read=TREND_WINDOW),
        *(_swa(start, 10) for start in STARTS),
        _swa(0.75, 20),
    ),
    draw="curves",
    assumed=(f"SWA's starts are not stated: {', '.join(f'{start:.0%}' for start in STARTS)}; its second rate is 1 %.",),
    standin="Fashion-MNIST, two layers of 200, 100 rounds, W = 20.",
    cost="Table 2's FedAvg run, and four forks of it",
)
