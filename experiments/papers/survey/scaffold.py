"""SCAFFOLD with one class per client: which part of the rule, or of the setting, keeps it behind FedAvg."""

import dataclasses
import pathlib

from .. import standin
from ..ghb import settings as ghb
from ..items import Claim, Item, Variation, methods
from ..remarks import rows_of
from ..trajectories import Fields
from ..wima.settings import BASE

# As survey/table3, a quarter of its rounds, and one rate for all.
SHORT = standin.fields("alpha0") | Fields(
    num_rounds=250, final_evals=25, eval_every=25, eval_examples=2000, client_lr=0.02
)
# The plug-in's module, under the name that this package has here.
IMPORT = f"{__name__.partition('.papers.')[0]}.plugins.scaffold_variants"
# The rows; flags are those in which one differs from the setting. All clients in every round are ten times the work of
# a round, so there are fewer rounds, at a larger rate; the rates of one or two steps of all 100 images make up for the
# missing steps.
ROWS = tuple(
    row.merged(imports=[IMPORT]) if row.paper["algorithm"].startswith("scaffold_variant") else row
    for row in methods("scaffold")
)
# (reason, what has to be seen, row that then is more accurate, row that it is compared with, earlier runs)
HYPOTHESES = rows_of(pathlib.Path(__file__).with_suffix(".md"))

TABLE5 = Item(
    name="survey/table5",
    base=Variation("cifar16", paper=BASE.fields("trend") | SHORT),
    rows=ROWS,
    columns=(Variation("alpha0", "CIFAR-10 at 16x16"),),
    variants=(Variation("base", "model"),),
    paired=True,
    stated=tuple(Claim(seen, (("row", better),), (("row", worse),)) for _, seen, better, worse, _ in HYPOTHESES),
)

# The cross-device columns of ghb/table4 with CIFAR-10: a direction that is twice as long, beside the rule as stated.
LEFT_OUT = Variation(
    "own0", "direction g(y) + c", Fields(algorithm="scaffold_variant:own=0", imports=[IMPORT]), trend_replaces=True
)
FIGURE5 = Item(
    name="survey/figure5",
    base=dataclasses.replace(ghb.BASE, absent="it needs the papers' number of rounds"),
    rows=(*ghb.picked("fedavg", "scaffold"), LEFT_OUT),
    columns=ghb.LENET_DEVICE[:2],
    draw="curves",
    seeds=(0,),
)
# Augmentation as in the code released with GHB, beside that of all other runs.
FIGURE6 = dataclasses.replace(
    FIGURE5, name="survey/figure6", rows=(*ghb.picked("fedavg"), *methods("augmentation")), columns=FIGURE5.columns[:1]
)
# Server momentum that moves ten times as far, beside FedCM as read off Table 7.
FIGURE7 = dataclasses.replace(
    FIGURE6, name="survey/figure7", rows=(*ghb.picked("fedavg", "fedcm"), *methods("server_rate"))
)
