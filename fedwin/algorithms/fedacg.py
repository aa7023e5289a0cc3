"""FedACG: clients start from a look-ahead along the server's momentum.

x is evaluated, not z.
"""

from fedwin import core, local, tree
from fedwin.algorithms.common import Weighting
from fedwin.algorithms.registry import ALGORITHMS, facts
from fedwin.registry.ranges import Decay, NonNegative, Positive


@ALGORITHMS.register(
    "fedacg",
    paper="kim2024communication",
    instances=("fedacg:lam=0.5",),
    degenerate={"lam": 0, "beta": 0},
    asynchronous=True,
    **facts(server="2"),
)
def fedacg(
    setting: core.Setting,
    solve: local.Solver,
    *,
    lam: Decay = 0.85,
    beta: NonNegative = 0.01,
    server_lr: Positive = 1.0,
    weighting: Weighting = "samples",
) -> core.Algorithm:
    """FedACG: direction g(y) + beta (y - z) from z = x + lam m.

        y <- y - lr (g(y) + beta (y - z)),   z = x + lam m
        m <- lam m + server_lr sum_i p_i (y_i - z),   x <- x + m

    Args:
      lam: momentum of the server and length of the look-ahead.
      beta: strength of the pull toward z, on f_i + beta/2 ||y - z||^2; the released code omits the 1/2.

    Source: Kim et al., Communication-Efficient Federated Learning with Accelerated Client Gradient, 2024,
    https://arxiv.org/abs/2201.03172.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("fedacg:lam=0.5")
      {'model': [3.919, 3.133, 3.05]}
    """

    def client(z, c):
        y = solve(z, c, local.proximal(beta))
        # Not a core.mean_step: it is relative to z, not to the server model.
        return y.update({"from_lookahead": core.mean(tree.sub(y.params, z), core.aggregation_weight(c, weighting))})

    def server(params, m, total, round):
        m = tree.axpy(server_lr, total["from_lookahead"].value, tree.scale(lam, m))
        return tree.add(params, m), m

    return core.algorithm(
        client, server, broadcast=lambda params, m: tree.axpy(lam, m, params), init=tree.zeros_like, weighting=weighting
    )
