"""FedProx: a proximal term keeps clients close to the model that they received.

The factor of the pull is mu, as in the paper; some implementations use mu/2.
"""

from fedwin import core, local
from fedwin.algorithms import common
from fedwin.algorithms.registry import ALGORITHMS, facts
from fedwin.registry.ranges import NonNegative, Positive


@ALGORITHMS.register(
    "fedprox",
    paper="li2020federated",
    instances=("fedprox:mu=0.5",),
    degenerate={"mu": 0},
    reported="1x",
    asynchronous=True,
    **facts(),
)
def fedprox(
    setting: core.Setting,
    solve: local.Solver,
    *,
    mu: NonNegative = 0.01,
    server_lr: Positive = 1.0,
    weighting: common.Weighting = "samples",
) -> core.Algorithm:
    """FedProx: direction g(y) + mu (y - x).

        y <- y - lr (g(y) + mu (y - x))
        x <- x + server_lr sum_i p_i (y_i - x)

    Args:
      mu: strength of the pull toward the received model.

    Source: Li et al., Federated Optimization in Heterogeneous Networks, 2020, https://arxiv.org/abs/1812.06127.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("fedprox:mu=0.5")
      {'model': [4.1, 3.403, 3.206]}
    """
    client = common.fedavg_client(solve, weighting, local.proximal(mu))
    return core.algorithm(client, common.fedavg_server(server_lr), weighting=weighting)
