"""q-FFL: clients with a larger loss count more, which makes losses more uniform across clients.

This is q-FedAvg on the objective sum_i p_i F_i^(q+1) / (q + 1), the paper's rule with numerator and denominator divided
by L, so that it stays defined at client rate 0. q = 0 is FedAvg with the same weights p_i. The paper draws clients in
proportion to p_i and sums without weights; the released code draws them uniformly and sums without weights, which is
weighting=uniform here. With uniform draws, weighting=samples is the objective with p_i = N_i / N.

F_i costs one forward pass over the client's examples per round, with the training-time preprocessing; weight decay is
part of it where it is part of the loss. 1e-10 is added to F_i, as in the released code. With a learning-rate schedule,
L follows the rate of the round. F_i must not be negative, as it may be with `--loss=wsm`.
"""

import jax.numpy as jnp

from fedwin import core, local, tree
from fedwin.algorithms import common
from fedwin.algorithms.registry import ALGORITHMS, facts
from fedwin.registry.ranges import NonNegative, Positive


@ALGORITHMS.register(
    "qffl",
    paper="li2020fair",
    instances=("qffl:q=1", "qffl:q=0.5,weighting=uniform"),
    degenerate={"q": 0},
    **facts(up="1 + 1 number"),
)
def qffl(
    setting: core.Setting,
    solve: local.Solver,
    *,
    q: NonNegative = 1.0,
    lipschitz: Positive | None = None,
    server_lr: Positive = 1.0,
    weighting: common.Weighting = "samples",
) -> core.Algorithm:
    """q-FFL (q-FedAvg): steps weighted by F_i^q, where F_i is the client's loss of the received model.

        h_i = F_i^q + q F_i^(q-1) L ||y_i - x||^2
        x   <- x + server_lr sum_i p_i F_i^q (y_i - x) / sum_i p_i h_i

    Args:
      q: exponent of the loss; larger values favor clients with large losses, 0 is FedAvg.
      lipschitz: L; none = 1 / lr, the client learning rate of the round, as in the paper.

    Source: Li et al., Fair Resource Allocation in Federated Learning, 2020, https://arxiv.org/abs/1905.10497.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("qffl:q=1")
      {'model': [5.466, 4.507, 3.936]}
    """
    if q == 0:
        return core.algorithm(
            common.fedavg_client(solve, weighting), common.fedavg_server(server_lr), weighting=weighting
        )

    def client(params, c):
        loss = solve.mean_loss(params, c) + 1e-10
        y = solve(params, c)
        delta = tree.sub(y.params, params)
        weight = core.aggregation_weight(c, weighting)
        # At client rate 0, y_i = x.
        curvature = 1 / jnp.where(y.lr > 0, y.lr, 1) if lipschitz is None else lipschitz
        # With a loss of 0, 1e-10 ** q is 0 in float32, and the mean would be 0 / 0.
        power = jnp.maximum(loss**q, jnp.finfo(loss.dtype).tiny)
        h = power + q * loss ** (q - 1) * curvature * tree.squared_norm(delta)
        return y.update({"delta": core.Mean(tree.scale(weight * power, delta), weight * h)})

    return core.algorithm(
        client,
        common.fedavg_server(server_lr),
        weighting=weighting,
        # The server does not know h_i.
        wire=lambda down, message: (down, (message["delta"], message["delta"].weight)),
    )
