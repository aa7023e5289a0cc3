"""Settings shared by the tables and figures of the re-weighted softmax (WSM): data sets, networks, losses."""

import functools

from .. import standin
from ..items import Variation, columns
from ..measures import MeanLast
from ..trajectories import Fields

SEEDS = (0,)
SKEW = "dirichlet:alpha=0.1,prior=symmetric"
# Accuracies are printed as fractions; the mean of the last 100 rounds.
BASE = Variation(
    "wsm",
    paper=Fields.of(
        f"partition={SKEW} num_clients=100 val_fraction=0.1 algorithm=fedavg local_epochs=3 batch_size=64 "
        "client_lr=0.1 weight_decay=1e-4 num_rounds=4000 eval_every=100 final_evals=100"
    ),
    trend=Fields(eval_every=10, final_evals=30),
    printed=(("algorithm", "FedAvg"), ("metric", "test_accuracy_fraction")),
    measure=MeanLast(unit="fraction"),
)
# All tables and figures have these unless they name others.
item = functools.partial(standin.item, base=BASE, seeds=SEEDS)
FEWER = "five of the nine rates fit into five minutes on two cores"
TREND_RATES = ("0.7", "0.3", "0.1", "0.03", "0.01")
# Two clients a round, as stated for CIFAR-100 alone. Fashion-MNIST stands in for CIFAR-10: two hidden layers of 200, 60
# rounds of 10 of 100 clients. The digits stand in for FEMNIST: 4 of 40 clients, each with a tenth held out.
CIFAR10, CIFAR100, FEMNIST = columns("wsm")
# GroupNorm or BatchNorm alone, of Table 3.3 and Figures 3.4 and 3.5. At trend scale: the rate of the figures, and a
# ResNet-18 with an eighth of its channels on the digits.
NORM_COLUMNS = columns("wsm_norm")
NORM_RATE = "0.05"
VARIANTS = (
    Variation("base", "cross-entropy", printed=(("variant", "base"),)),
    Variation("wsm", "WSM", Fields(loss="wsm"), printed=(("variant", "+wsm"),)),
)


def at_rate(rate: str) -> Variation:
    """Returns the row of a learning rate."""
    name = f"lr{rate}".replace(".", "")
    absent = "" if rate in TREND_RATES else FEWER
    return Variation(
        name, f"lr {rate}", Fields(client_lr=float(rate)), absent=absent, printed=(("variant", f"lr={rate}"),)
    )


def at_alpha(alpha: float) -> Variation:
    """Returns the column of a Dirichlet parameter."""
    fields = Fields(partition=f"dirichlet:alpha={alpha:g},prior=symmetric")
    return Variation(f"alpha{alpha:g}".replace(".", ""), f"alpha = {alpha:g}", fields)
