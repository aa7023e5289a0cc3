"""CIFAR-10 at 16x16 with one class per client: a stand-in that is hard enough to tell methods apart."""

from .. import standin
from ..ima.settings import averaging, before_adaptive_servers
from ..items import Item, Variation
from ..trajectories import Fields
from ..wima.settings import BASE

METHODS = tuple(
    Variation(name, standin.LABELS[name], Fields(algorithm=algorithm, client_lr=rate))
    for name, (algorithm, rate) in standin.RATES["alpha0"].items()
)
WINDOWS = (
    Variation("base", "model"),
    Variation("wima20", "WIMA, W = 20", read="wima:window=20"),
    Variation("wima100", "WIMA, W = 100", read="wima:window=100"),
    Variation("ema", "EMA", read="ema"),
    Variation("swa", "SWA", read="swa:start=0.75,cycle=10"),
)
# A fork of the base run, whose average goes back to the clients; the rate is left alone.
IMA = averaging("ima", "IMA, P = 5", more=",schedule=none")


TABLE3 = Item(
    name="survey/table3",
    base=Variation("cifar16", paper=BASE.fields("trend") | standin.fields("alpha0")),
    rows=METHODS,
    columns=(Variation("alpha0", "CIFAR-10 at 16x16"),),
    variants=(*WINDOWS, IMA),
    overrides=before_adaptive_servers((IMA,)),
    paired=True,
    standin=f"{standin.TEXT} That search: 400 rounds, seed 100, three rates (FedProx: two), or four where the best lay "
    "at an end; the rates of FedAvg, FedProx and Local-GHB (0.1), of FedStale (0.2) and of SCAFFOLD (0.005) still lie "
    "at an end of what was tried. Other hyper-parameters were not searched. Methods without numbers have a rate and "
    "are not trained yet. IMA: from 75 % of the rounds on, at the same rate.",
)

ITEMS = (TABLE3,)
