"""What the IMA paper's figures of trained models share."""

from ..analyses import Analysis
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
# Figure 8 has half as many rounds.
HALF = {"num_rounds": 200}
CROSS_SILO_HALF = Entry(
    "cross_silo_half", paper=CROSS_SILO.paper | HALF, trend=(CROSS_SILO.trend or Fields()) | {"num_rounds": 60}
)
# Shares of the rounds: early, in the middle, late.
STAGES = {"early": 0.05, "middle": 0.5, "late": 1.0}
# With `clients`, so many of the round after the checkpoint span the plane; without, three checkpoints do.
CHECKPOINTS = Fields(split="test", points=21, margin=0.2)
CLIENTS = CHECKPOINTS | {"clients": 3}
COARSE = {"points": 15}
NOT_SAID = "Which rounds are early, middle and late is not stated: 5 %, 50 % and 100 % of them."
POINTS = "15 points along an axis."
STANDIN = f"Digits, a hidden layer of 64, 4 of 40 clients, 120 rounds; {POINTS}"
# A residual network with GroupNorm that two cores can train.
RESIDUAL = DIGITS | {"model": "resnet20"}
RESIDUAL_STANDIN = f"Digits, ResNet-20 with GroupNorm, 4 of 40 clients, 120 rounds; {POINTS}"
EVALUATED = "441 evaluations of 10,000 images"


def through_clients(name: str, base: Entry, stage: str, what: str, standin: str, cost: str) -> Analysis:
    """Returns the plane through three clients' models of one round.

    Args:
      name: of the item.
      base: what is trained.
      stage: of STAGES.
      what: the federation, in words.
      standin: what takes its place at trend scale.
      cost: at paper scale.
    """
    return Analysis(
        name=name,
        title=f"Loss and error on the plane through three clients' models, {stage}; {what}",
        kind="plane",
        base=base,
        runs=(FEDAVG,),
        at=(STAGES[stage],),
        options=CLIENTS,
        trend_options=CLIENTS | COARSE,
        seeds=SEEDS,
        assumed=(NOT_SAID, "The rate does not decay, as the figures' settings say."),
        standin=standin,
        cost=f"{cost}; {EVALUATED}",
    )


def of_column(column: Entry, standin: Fields | None = None) -> Entry:
    """Returns a base of Figure 10: a column of Table I without decay of the rate, 400 rounds.

    Args:
      column: of Table I.
      standin: what stands in for it at trend scale; None: what does in Table I.
    """
    plain = {"lr_decay": 0.0}
    trend = BASE.fields("trend") | (standin or column.trend or Fields()) | plain
    return Entry(column.name, paper=BASE.paper | column.paper | plain | {"num_rounds": 400}, trend=trend)
