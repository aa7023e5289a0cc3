"""Registry of algorithms: builders `builder(setting, solve, *, hyper=default, ...) -> core.Algorithm`."""

from typing import Any

from fedwin.core import Algorithm
from fedwin.registry import Registry

# Facts about an algorithm:
#   down, up: models that one client receives and sends in one round, with extra numbers and options in words, such as
#     '2 (3 with momentum)' or '1 + C d numbers';
#   reported: communication overhead as printed in the GHB paper;
#   server, client: models that each of them stores between rounds;
#   status: what the arithmetic is tested against: the authors' own code or printed numbers ('paper'), own code in NumPy
#     ('checked'), or neither ('new');
#   degenerate: hyper-parameters under which the method is FedAvg (None: there are none);
#   asynchronous: whether its server may add up updates that started from different models (--asynchronous);
#   warmup_horizon: the parameter that holds the number of rounds before the method differs from FedAvg.
ALGORITHMS = Registry(
    "algorithm",
    columns={
        "status": "{status}",
        "down / up": "{down} / {up}",
        "reported": "{reported}",
        "server / client keep": "{server} / {client}",
    },
    rule="rule",
    builds=Algorithm,
    common={
        "server_lr": "server learning rate eta.",
        "weighting": "p_i proportional to N_i ('samples') or equal ('uniform').",
        "b1": "first-moment decay.",
        "b2": "second-moment decay.",
        "eps": "added to the square root.",
        "rho": "radius of the perturbation.",
    },
    down="?",
    up="?",
    reported="-",
    server="?",
    client="?",
    status="new",
    degenerate=None,
    asynchronous=False,
    warmup_horizon="",
)


def facts(down="1", up="1", server="1", client="0", status="checked") -> dict[str, Any]:
    """Returns facts of a method of this package; those that are not given are FedAvg's."""
    return {"down": down, "up": up, "server": server, "client": client, "status": status}
