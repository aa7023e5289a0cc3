"""What the IMA paper's figures of trained models share."""

from ..items import Entry
from ..trajectories import Fields
from .settings import BASE, CNN_SHARDS, DIGITS, SHARDS

SEEDS = (2023,)
# No decay of the rate, two shards per client; of the plain runs of Figures 1, 5 and 9.
PLAIN = Entry(
    "plain",
    paper=BASE.paper | CNN_SHARDS.paper | {"lr_decay": 0.0},
    trend=DIGITS | {"partition": SHARDS, "lr_decay": 0.0},
)
FEDAVG = Entry("fedavg", "FedAvg", Fields(algorithm="fedavg"))
# All of 10 clients in every round.
SILO = Fields(num_clients=10, clients_per_round=10)
CROSS_SILO = Entry("cross_silo", paper=PLAIN.paper | SILO, trend=(PLAIN.trend or Fields()) | SILO)
# An early, a middle and a late round whose clients are looked at.
STAGES = (0.05, 0.5, 1.0)
# Three clients of the round after the checkpoint span the plane; without, three checkpoints do.
CLIENTS = Fields(clients=3, split="test", points=21, margin=0.2)
CHECKPOINTS = Fields(split="test", points=21, margin=0.2)
COARSE = {"points": 15}
NOT_SAID = "Which rounds are early, middle and late is not stated: 5 %, 50 % and 100 % of them."
STANDIN = "Digits, a hidden layer of 64, 120 rounds; 15 points along an axis."
