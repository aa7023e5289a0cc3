"""Settings shared by the WIMA paper's tables and figures: data sets, networks, methods and their grids."""

import functools
from typing import Any

from .. import standin
from ..items import Variation, columns, methods, printed_at
from ..trajectories import Fields

# FedAvg on the server, no local momentum, one local epoch, mean of the last 100 rounds; 3 seeds.
BASE = Variation(
    "wima", paper=Fields(local_epochs=1, eval_every=100, final_evals=100), trend=Fields(eval_every=10, final_evals=30)
)
# All tables and figures have these unless they name others.
item = functools.partial(standin.item, base=BASE)

CIFAR = Fields.of(
    "num_clients=100 clients_per_round=10 model=resnet20 augment=crop_flip num_rounds=10000 "
    "batch_size=100 client_lr=0.1"
)
# With batches of 20, for which no rates were searched: the digits' coarse search, as in `fedwin compare`.
FASHION = standin.FASHION | {"client_lr": 0.05}


def cifar(name: str, data: str, alpha: str, trend: Fields) -> Variation:
    """Returns the column of a CIFAR set in Dirichlet shares, for which `trend` stands in."""
    data_fields = Fields(dataset=f"cifar{data}", partition=f"dirichlet:alpha={alpha}")
    printed = printed_at(f"CIFAR-{data}", f"hsu_dirichlet:alpha={alpha};K=100", "ResNet-20-GN")
    standin = trend | {"partition": f"dirichlet:alpha={alpha}"}
    label = f"CIFAR-{data}, alpha = {alpha}"
    return Variation(name, label, CIFAR | data_fields, standin, trend_replaces=True, printed=printed)


CIFAR10_0 = cifar("cifar10_alpha0", "10", "0", standin.fields("alpha0"))
CIFAR10_005 = cifar("cifar10_alpha005", "10", "0.05", standin.fields("alpha005"))
CIFAR100_0 = cifar("cifar100_alpha0", "100", "0", standin.fields("fashion_alpha0"))
CIFAR100_05 = cifar("cifar100_alpha05", "100", "0.5", standin.fields("fashion_alpha05"))
# Of SHAKESPEARE tokens are counted as FedJAX does, which the paper's code base reports.
PAM, FEMNIST, SHAKESPEARE, LANDMARKS = columns("wima")

# Rates at trend scale come from a coarse search on the digits, where a stand-in has none of its own.
METHODS = methods("wima")


def windowed(
    name: str, label: str, *printed: tuple[str, str], size: int = 100, small: int = 20, more: str = "", **about: Any
) -> Variation:
    """Returns a variant that is read through a window, at trend scale through a small one.

    The small one is for runs of 100 rounds; those of CIFAR-10's stand-in are long enough for the paper's.
    """
    read, trend_read = f"wima:window={size}{more}", f"wima:window={small}{more}"
    return Variation(name, label, printed=printed, read=read, trend_read=trend_read, **about)
