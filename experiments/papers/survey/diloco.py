"""DiLoCo on Shakespeare's plays: windows over the outer steps against a decay of the inner rate at equal budget."""

import pathlib
from typing import Any

from ..ima.settings import averaging
from ..items import Item, Override, Variation, columns
from ..measures import MeanLoss
from ..remarks import best_of, lines_of
from ..trajectories import Fields

# A character transformer of 0.06 M parameters, 4 workers with 9 or 10 plays each, H = 25 AdamW steps of 2 x 64
# characters: batches small enough for the noise of the steps to show within the budget.
PLAYS = Fields.of(
    "dataset=shakespeare_plays:clients=4,length=64 num_clients=4 clients_per_round=4 "
    "model=transformer:layers=2,width=48,heads=4 local_steps=25 batch_size=2 num_rounds=200 eval_every=40 "
    "final_evals=3 eval_examples=1000"
)
# 5,000 inner steps a worker in every column: a round of H = 25 steps is the default. Rates: the best of 0.00025,
# 0.0005, 0.001, 0.002, 0.004 and 0.008 (Nesterov), 0.001, 0.002 and 0.004 (mean) by the loss of the last model on rows
# that workers hold out (3 %), 300 rounds, seed 100, plays apart; with H = 5 of 0.00025, 0.0005 and 0.001, with H = 100
# of 0.00025, 0.0005, 0.001 and 0.002 and iid of 0.0005, 0.001 and 0.002, the rounds of the column. (H = 5: 0.00025 and
# 0.0005 are equal within 0.001.) A decay over the last fifth has the same best rates (between worse ones). A cosine
# from the first round on, apart, has 2.108 at 0.0005, the best of 0.0005, 0.001 and 0.002, where that decay has 1.904.
SETTINGS = columns("diloco")
READOUTS = (
    *(Variation(f"wima{size}", f"WIMA, W = {size}", read=f"wima:window={size}") for size in (5, 10, 20, 50)),
    Variation("cosine20", "W = 20, weights of a cosine", read="wima:window=20,weights=cosine"),
    Variation("ema", "EMA, 0.9", read="ema:decay=0.9"),
    Variation("swa", "SWA, from 75 %", read="swa:start=0.75,cycle=1"),
)
# A fork of the same run: the rate falls to 0 over its last fifth, at equal budget.
DECAY = Variation("decay", "decay over the last fifth", Fields(lr_schedule="wsd"), fork=0.8)
# Another one: the mean of the last five server models goes back to the workers, at the same rate.
FED_BACK = averaging("ima", "IMA, P = 5, from 85 %, constant rate", start=0.85, more=",schedule=none")
# Rows of single columns: a window of 1 % of the rounds, in which workers take 1 % of their steps (half a round where
# H = 100); what trains from an average in place of Nesterov's momentum, GPA's memory of 0.9 being that of the momentum
# and of the EMA; and DiLoCo whose workers go on for a fifth of a round before they mix the new model in.
_SINGLE: dict[str, tuple[str, dict[str, Variation]]] = {
    "percent": (
        "WIMA, 1 % of the rounds",
        {name: Variation(name, read=f"wima:window={w}") for name, w in (("nesterov", 2), ("nesterov_h5", 10))},
    ),
    "gpa": ("GPA, 0.7 and 0.9", {"mean": Variation("gpa", paper=Fields(wrap=["primal:mu_y=0.7,mu_x=0.9"]))}),
    "schedule_free": (
        "schedule-free, 0.9",
        {"mean": Variation("schedule_free", paper=Fields(wrap=["schedule_free:beta=0.9"]))},
    ),
    "overlap": (
        "overlap of 5 steps, mixing 0.5",
        {"nesterov": Variation("overlap", paper=Fields(algorithm="diloco:delay=5,mixing=0.5"))},
    ),
}
SINGLE = tuple(Variation(name, label) for name, (label, _) in _SINGLE.items())
# Row -> inner rate: the best of those that were tried, by the loss of the last models on rows that workers hold out.
_BEST = best_of(lines_of(pathlib.Path(__file__).with_suffix(".csv")), "row", by="loss")
RATES = {row: float(one["rate"]) for (row,), one in _BEST.items()}
OVERRIDES = (
    *(
        Override(cells.get(setting.name, Variation(name, absent="of single columns")), (name,), (setting.name,))
        for name, (_, cells) in _SINGLE.items()
        for setting in SETTINGS
    ),
    *(Override(Variation(f"rate_{row}", paper=Fields(client_lr=rate)), (row,)) for row, rate in RATES.items()),
)
COMMON: dict[str, Any] = dict(
    base=Variation("plays", paper=PLAYS, measure=MeanLoss()),
    columns=SETTINGS,
    seeds=(0, 1, 2, 3, 4),
)

MODEL = Variation("base", "last model")


TABLE4 = Item(
    name="survey/table4",
    rows=(MODEL, *READOUTS, FED_BACK, DECAY, *SINGLE),
    overrides=OVERRIDES,
    paired=True,
    **COMMON,
)
FIGURE2 = Item(
    name="survey/figure2",
    rows=(MODEL, *(row for row in READOUTS if row.name in ("wima20", "ema")), DECAY),
    draw="curves",
    **COMMON,
)

ITEMS = (TABLE4, FIGURE2)
