"""DiLoCo on Shakespeare's plays: windows over the outer steps against a decay of the inner rate at equal budget."""

from typing import Any

from ..items import Claim, Item, Variation
from ..measures import MeanLoss
from ..trajectories import Fields

# A character transformer of 0.06 M parameters, 4 workers with 9 or 10 plays each, H = 25 AdamW steps of 8 x 64
# characters.
PLAYS = Fields(
    dataset="shakespeare_plays:clients=4,length=64",
    num_clients=4,
    clients_per_round=4,
    model="transformer:layers=2,width=48,heads=4",
    local_steps=25,
    batch_size=8,
    num_rounds=80,
    eval_every=10,
    final_evals=3,
    eval_examples=1000,
)
NESTEROV, MEAN = "diloco", "diloco:optimizer=sgd,server_lr=1"
# Name -> (label, outer optimizer, schedule, inner rate). Rates: the best of three, or more where it lies at an end, by
# the loss on rows that workers hold out (3 %), 30 rounds, seed 100, plays apart.
_ROWS = {
    "nesterov": ("DiLoCo, constant rate", NESTEROV, "", 0.001),
    "nesterov_cosine": ("DiLoCo, cosine decay", NESTEROV, "cosine", 0.001),
    "mean": ("plain mean, constant rate", MEAN, "", 0.002),
    "mean_cosine": ("plain mean, cosine decay", MEAN, "cosine", 0.002),
}
ROWS = tuple(
    Variation(name, label, Fields(algorithm=algorithm, lr_schedule=schedule, client_lr=rate))
    for name, (label, algorithm, schedule, rate) in _ROWS.items()
)
COLUMNS = (
    Variation("apart", "plays apart", Fields(partition="natural")),
    Variation("iid", "iid", Fields(partition="iid")),
)
WINDOWS = (5, 10, 20, 50)
READOUTS = (
    *(Variation(f"wima{size}", f"WIMA, W = {size}", read=f"wima:window={size}") for size in WINDOWS),
    Variation("ema", "EMA, 0.9", read="ema:decay=0.9"),
    Variation("swa", "SWA, from 75 %", read="swa:start=0.75,cycle=1"),
)
COMMON: dict[str, Any] = dict(
    base=Variation("plays", paper=PLAYS, measure=MeanLoss()),
    rows=ROWS,
    columns=COLUMNS,
    seeds=(0, 1, 2, 3, 4),
    standin="37 plays, the last tenth of each is test text (1,000 rows of 64 characters are evaluated); 4 workers with "
    "nine or ten plays each, or with equal shares of all rows (iid), all of which take part in each of 80 rounds of "
    "H = 25 steps of AdamW; a character transformer of 0.06 M parameters (two blocks of width 48), batches of 8 rows, "
    "no weight decay; outer SGD with rate 0.7 and Nesterov's momentum 0.9, or the plain mean. Cosine: the inner rate "
    "decays to 0 over the same 80 rounds. Rates: the best of three or more by the loss on rows that workers hold out "
    "(30 rounds, seed 100, plays apart), the same for both columns. After 80 rounds the loss still falls quickly, so "
    "that a decay of the rate and long windows lag behind: a longer budget may turn these comparisons.",
    cost="about 80 s a run on one quiet core",
)


def _lower(text: str, better: tuple[str, str], worse: tuple[str, str]) -> Claim:
    """Returns the claim that the test loss of one row and variant is lower than that of another, in every column."""
    place = lambda cell: (("row", cell[0]), ("variant", cell[1]))
    return Claim(text, place(better), place(worse))


TABLE4 = Item(
    name="survey/table4",
    title="DiLoCo on Shakespeare's plays: windows, EMA, SWA and a decay of the inner rate",
    variants=(Variation("base", "last model"), *READOUTS),
    paired=True,
    claims=(
        *(
            _lower(
                f"{readout.title}: the test loss is lower than that of DiLoCo's last model.",
                ("nesterov", readout.name),
                ("nesterov", "base"),
            )
            for readout in READOUTS
        ),
        _lower(
            "A cosine decay at equal budget has a lower test loss than DiLoCo's last model at a constant rate.",
            ("nesterov_cosine", "base"),
            ("nesterov", "base"),
        ),
        _lower(
            "A window of 10 at a constant rate has a lower test loss than a cosine decay at equal budget.",
            ("nesterov", "wima10"),
            ("nesterov_cosine", "base"),
        ),
        _lower(
            "With a plain mean, too, a window of 10 has a lower test loss than the last model.",
            ("mean", "wima10"),
            ("mean", "base"),
        ),
    ),
    **COMMON,
)
FIGURE2 = Item(
    name="survey/figure2",
    title="Test loss of DiLoCo on Shakespeare's plays",
    variants=(Variation("base", "last model"), *(v for v in READOUTS if v.name in ("wima10", "ema"))),
    draw="curves",
    **(COMMON | {"rows": ROWS[:2]}),
)

ITEMS = (TABLE4, FIGURE2)
