"""Client momentum that persists across rounds (--client_momentum starts from zero in every round).

With one client that holds all examples and takes part in every round for one epoch, this is centralized training.
"""

import dataclasses

import optax

from fedwin import core, local
from fedwin.algorithms.common import Server, Weighting, fedavg_server, fedavg_with
from fedwin.algorithms.registry import ALGORITHMS, facts
from fedwin.registry.ranges import Decay, Positive


@ALGORITHMS.register(
    "local_momentum",
    paper="polyak1964some",
    instances=("local_momentum:momentum=0.5", "local_momentum:momentum=0.5,weighting=uniform"),
    degenerate={"momentum": 0},
    **facts(client="1"),
)
def local_momentum(
    setting: core.Setting,
    solve: local.Solver,
    *,
    momentum: Decay = 0.9,
    server_lr: Positive = 1.0,
    weighting: Weighting = "samples",
) -> core.Algorithm:
    """FedAvg with v_i <- momentum v_i + g(y), y <- y - lr v_i, and v_i stored by the client between its rounds.

    The whole state of the local optimizer (--client_optimizer) persists across rounds; weight decay is part of g, as in
    PyTorch.

        v_i <- momentum v_i + g(y),   y <- y - lr v_i
        x   <- x + server_lr sum_i p_i (y_i - x)

    Args:
      momentum: momentum of the local steps; `--client_momentum` is a second one, on top of it, and also persists.

    Source: Polyak, Some Methods of Speeding up the Convergence of Iteration Methods, 1964,
    https://doi.org/10.1016/0041-5553(64)90137-5.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("local_momentum:momentum=0.5")
      {'model': [3.352, 3.22, 3.254]}
    """
    optimizer = optax.chain(optax.trace(momentum), solve.optimizer) if momentum else solve.optimizer
    server = Server(lambda params: (), fedavg_server(server_lr))
    return fedavg_with(server, dataclasses.replace(solve, optimizer=optimizer), weighting, keeps_optimizer=True)
