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
    partition="natural",
    local_steps=25,
    batch_size=8,
    num_rounds=120,
    eval_every=20,
    final_evals=3,
    eval_examples=1000,
)
NESTEROV, MEAN = "diloco", "diloco:optimizer=sgd,server_lr=1"
# Name -> (label, fields).
ROWS = tuple(
    Variation(name, label, fields)
    for name, label, fields in (
        ("rate1", "Nesterov, rate 0.001", Fields(algorithm=NESTEROV, client_lr=0.001)),
        ("rate2", "Nesterov, rate 0.002", Fields(algorithm=NESTEROV, client_lr=0.002)),
        ("rate4", "Nesterov, rate 0.004", Fields(algorithm=NESTEROV, client_lr=0.004)),
        ("mean", "plain mean, rate 0.004", Fields(algorithm=MEAN, client_lr=0.004)),
        ("iid", "Nesterov, rate 0.004, iid", Fields(algorithm=NESTEROV, client_lr=0.004, partition="iid")),
    )
)
READOUTS = (
    *(Variation(f"wima{size}", f"WIMA, W = {size}", read=f"wima:window={size}") for size in (5, 10, 20, 50)),
    Variation("cosine20", "W = 20, cosine weights", read="wima:window=20,weights=cosine"),
    Variation("ema", "EMA, 0.9", read="ema:decay=0.9"),
    Variation("swa", "SWA, from 75 %", read="swa:start=0.75,cycle=1"),
)
# Forks of the same run: the rate falls to 0 over its last fifth; the mean of five models is fed back.
FORKS = (
    Variation("decay", "decay over the last fifth", Fields(lr_schedule="wsd"), fork=0.8),
    Variation("ima", "IMA, P = 5, from 75 %", Fields(wrap=["ima:window=5,start=0.75"]), fork=0.7),
)
