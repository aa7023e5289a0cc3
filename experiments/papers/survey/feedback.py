"""Between reading an average and training from it: shares of a window's mean that go back to the clients."""

from .. import standin
from ..ima.settings import START
from ..items import Item, Override, Variation
from ..trajectories import Fields
from ..wima.settings import BASE
from .cifar16 import METHODS

WINDOWS = (20, 100)
SHARES = (0.25, 0.5, 0.75, 1.0)
# The fork precedes the feedback by the longer window, so that both are full when it begins.
FORK = START - 0.1
ROWS = tuple(row for name in ("fedavg", "fedhbm", "scaffold") for row in METHODS if row.name == name)
READ = Variation("f0", "0 (read alone)")
FED_BACK = tuple(Variation(f"f{100 * share:.0f}", f"{share:g}", fork=FORK) for share in SHARES)


def _of_window(window: int, variant: Variation, share: float) -> Override:
    """Returns what a column's window makes of a variant: a read-out of the base run, or IMA with this feedback."""
    name = f"{variant.name}_w{window}"
    wrap = f"ima:window={window},start={START},schedule=none,feedback={share:g}"
    read = Variation(name, read=f"wima:window={window}")
    back = Variation(name, paper=Fields(wrap=[wrap.removesuffix(",feedback=1")]), fork=FORK)
    return Override(back if share else read, columns=(f"w{window}",), variants=(variant.name,))


TABLE6 = Item(
    name="survey/table6",
    base=Variation("feedback", paper=BASE.fields("trend") | standin.fields("alpha0")),
    rows=ROWS,
    columns=tuple(Variation(f"w{window}", f"W = {window}") for window in WINDOWS),
    variants=(READ, *FED_BACK),
    overrides=tuple(
        _of_window(window, variant, share)
        for window in WINDOWS
        for variant, share in zip((READ, *FED_BACK), (0.0, *SHARES), strict=True)
    ),
    paired=True,
    cifar16=standin.TEXT,
)
