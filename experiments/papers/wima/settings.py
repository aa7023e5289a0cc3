"""Settings shared by the WIMA paper's tables and figures: data sets, networks, methods and their grids."""

import functools

from .. import standin
from ..items import Variation, methods, printed_at
from ..trajectories import Fields

# FedAvg on the server, no local momentum, one local epoch, mean of the last 100 rounds; 3 seeds.
BASE = Variation(
    "wima",
    paper=Fields(local_epochs=1, eval_every=100, final_evals=100),
    trend=Fields(eval_every=10, final_evals=30),
)
# All tables and figures have these unless they name others.
item = functools.partial(standin.item, base=BASE)

CIFAR = Fields.of(
    "num_clients=100 clients_per_round=10 model=resnet20 augment=crop_flip num_rounds=10000 "
    "batch_size=100 client_lr=0.1"
)
# The handwritten digits: a hidden layer of 64, 150 rounds of 10 of 100 clients.
DIGITS = Fields.of(
    "dataset=digits num_clients=100 clients_per_round=10 model=digits_mlp num_rounds=150 local_epochs=3 "
    "batch_size=7 client_lr=0.05"
)
# Fashion-MNIST stands in for CIFAR-100: two hidden layers of 200, 100 rounds; a fifth of the test images, since
# several windows are read in each of the last rounds.
FASHION = Fields.of(
    "dataset=fmnist eval_examples=2000 num_clients=100 clients_per_round=10 model=mlp num_rounds=100 "
    "batch_size=50 client_lr=0.05"
)


def cifar(name: str, data: str, alpha: str, trend: Fields | None, absent: str = "") -> Variation:
    """Returns the column of a CIFAR set in Dirichlet shares; without `trend` nothing stands in for it."""
    data_fields = Fields(dataset=f"cifar{data}", partition=f"dirichlet:alpha={alpha}")
    printed = printed_at(f"CIFAR-{data}", f"hsu_dirichlet:alpha={alpha};K=100", "ResNet-20-GN")
    standin = None if trend is None else trend | {"partition": f"dirichlet:alpha={alpha}"}
    label = f"CIFAR-{data}, alpha = {alpha}"
    return Variation(name, label, CIFAR | data_fields, standin, trend_replaces=True, absent=absent, printed=printed)


SUBSET = "of CIFAR-100 there is a subset of 60 images per class here, which is too small to be split among 100 clients"
CIFAR10_0 = cifar("cifar10_alpha0", "10", "0", standin.fields("alpha0"))
CIFAR10_005 = cifar("cifar10_alpha005", "10", "0.05", standin.fields("alpha005"))
CIFAR100_0 = cifar("cifar100_alpha0", "100", "0", FASHION)
CIFAR100_05 = cifar("cifar100_alpha05", "100", "0.5", FASHION)
PAM = Variation(
    "cifar100_pam",
    "CIFAR-100, Pachinko",
    CIFAR
    | Fields.of(
        "dataset=cifar100_pam partition=natural num_clients=500 clients_per_round=100 batch_size=20 "
        "client_lr=0.05 weight_decay=0.0004"
    ),
    absent=SUBSET,
    printed=printed_at("CIFAR-100", "pam;K=500", "ResNet-20-GN"),
)
FEMNIST = Variation(
    "femnist",
    "FEMNIST",
    Fields.of(
        "dataset=femnist partition=natural clients_per_round=10 model=emnist_cnn num_rounds=1500 "
        "batch_size=10 batching=repeat client_lr=0.1 eval_every=50"
    ),
    Fields.of(
        "dataset=mnist_writers partition=natural clients_per_round=10 model=mlp num_rounds=100 batch_size=10 "
        "batching=repeat client_lr=0.05"
    ),
    trend_replaces=True,
    printed=printed_at("FEMNIST-62", "natural_writers;K=3400", "EMNIST-CNN-dropout"),
)
SHAKESPEARE = Variation(
    "shakespeare",
    "Shakespeare",
    Fields.of(
        "dataset=shakespeare partition=natural clients_per_round=10 model=shakespeare_lstm num_rounds=1500 "
        "batch_size=4 batching=repeat client_lr=1.0 eval_every=50 eval_batch_size=50"
    ),
    # Tokens counted as FedJAX does, which the paper's code base reports.
    metric="accuracy_fedjax",
    absent="rounds of two LSTMs of 256 take too long for five minutes on two cores",
    printed=printed_at("Shakespeare-715", "natural_roles;K=715", "LSTM-2x256"),
)


# Rates at trend scale come from a coarse search on the digits, as in `fedwin compare`; the stand-in of CIFAR-10 has
# its own.
METHODS = methods("wima")

WINDOW = "wima:window=100"
# Of the runs of 100 rounds; those of the stand-in of CIFAR-10 are long enough for the paper's.
TREND_WINDOW = "wima:window=20"
