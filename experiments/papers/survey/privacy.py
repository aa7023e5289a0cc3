"""Privacy: averages of private runs against their last models, over epsilon."""

import dataclasses

from ..items import Item, Override, Variation
from ..trajectories import Fields

DELTA = 1e-4
WINDOW = 20
PRIVATE = Fields(weighting="uniform", sampling="poisson", partition="dirichlet:alpha=0", eval_every=50, final_evals=10)
# The norm that steps are clipped to, and the local rate: the better ones of a coarse search (seed 100).
DIGITS = Fields.of(
    "dataset=digits num_clients=700 clients_per_round=70 model=digits_mlp:hidden=32 num_rounds=150 "
    "local_epochs=3 batch_size=2 client_lr=0.3"
)
FASHION = Fields.of(
    "dataset=fmnist num_clients=6000 clients_per_round=300 model=mlp:hidden=32 num_rounds=100 "
    "batch_size=10 client_lr=0.1 eval_examples=2000"
)
CLIP = {"digits": 0.6, "fashion": 1.0}
# Noise multiplier -> epsilon at DELTA after all rounds, by privacy loss distributions (fedwin.wrappers.accounting).
EPSILON = {
    "digits": {0.5: 33.93, 1.0: 7.37, 2.0: 2.45, 4.0: 1.02},
    "fashion": {0.5: 15.26, 1.0: 2.87, 2.0: 0.90, 4.0: 0.37},
}
TASKS = {"digits": ("digits", DIGITS), "fashion": ("Fashion-MNIST", FASHION)}


def _wrap(task: str, noise: float, *more: str) -> Fields:
    return Fields(wrap=[f"dp:clip={CLIP[task]},noise={noise},delta={DELTA}", *more])


def _column(task: str, noise: float) -> Variation:
    label, fields = TASKS[task]
    epsilon = EPSILON[task][noise]
    return Variation(
        f"{task}_{noise:g}", f"{label}, epsilon = {epsilon:g}", fields | _wrap(task, noise), x=epsilon, group=label
    )


def _averaged(task: str, noise: float) -> Override:
    """Returns the change of IMA in a column: a fork, whose first rounds have the same noise."""
    own = Variation("averaged", paper=_wrap(task, noise, "ima"), fork=0.7)
    return Override(own, rows=("ima",), columns=(f"{task}_{noise:g}",))


PLACES = [(task, noise) for task, by_noise in EPSILON.items() for noise in by_noise]
TABLE2 = Item(
    name="survey/table2",
    base=Variation("privacy", paper=PRIVATE),
    rows=(
        Variation("model", "last model"),
        Variation("wima", f"WIMA, {WINDOW} rounds", read=f"wima:window={WINDOW}"),
        Variation("ema", "EMA, 0.95", read="ema:decay=0.95"),
        Variation("swa", "SWA, from 75 %", read="swa:start=0.75,cycle=1"),
        Variation("ima", "IMA, from 75 %"),
    ),
    columns=tuple(_column(task, noise) for task, noise in PLACES),
    overrides=tuple(_averaged(task, noise) for task, noise in PLACES),
    seeds=(0, 1, 2, 3, 4),
    paired=True,
)
FIGURE1 = dataclasses.replace(TABLE2, name="survey/figure1", draw="sweep", axis="epsilon", paired=False)
