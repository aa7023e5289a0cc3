"""CIFAR-10 at 16x16 with one class per client: a stand-in that is hard enough to tell methods apart."""

from .. import standin
from ..ima.settings import averaging, before_adaptive_servers
from ..items import Item, Variation
from ..wima.settings import BASE

METHODS = tuple(
    Variation(name, label, standin.RATES["alpha0"][name])
    for name, label in standin.LABELS.items()
    if name in standin.RATES["alpha0"]
)
WINDOWS = (
    Variation("base", "model"),
    Variation("wima20", "WIMA, W = 20", read="wima:window=20"),
    Variation("wima100", "WIMA, W = 100", read="wima:window=100"),
    Variation("ema", "EMA", read="ema"),
    Variation("swa", "SWA", read="swa:start=0.75,cycle=10"),
)
# A fork of the base run, whose average goes back to the clients; the rate is left alone.
IMA = averaging("ima", "IMA, P = 5, constant rate", more=",schedule=none")


TABLE3 = Item(
    name="survey/table3",
    base=Variation("cifar16", paper=BASE.fields("trend") | standin.fields("alpha0")),
    rows=METHODS,
    columns=(Variation("alpha0", "CIFAR-10 at 16x16"),),
    variants=(*WINDOWS, IMA),
    overrides=before_adaptive_servers((IMA,)),
    paired=True,
    cifar16=standin.TEXT,
)
