"""Ditto: every client trains a personal model that is pulled toward the server's.

Both models take the same mini-batches, and x is the received model during the whole round, as in the paper's Algorithm
1 (with s = r) and in the authors' code. x is FedAvg's: lam = 0 makes v_i purely local models, a large lam keeps them
near x. v_i is never sent, so bounds on the step (`--wrap=clip`) do not apply to it.

The released code also searches lam in {0.1, 1, 2} by the validation loss in every step (`dynamic_lam`), which is not
implemented.
"""

import dataclasses

from fedwin import core, local
from fedwin.algorithms import common, personal
from fedwin.algorithms.registry import ALGORITHMS, facts
from fedwin.registry.ranges import NonNegative, Positive


@ALGORITHMS.register(
    "ditto", paper="li2021ditto", instances=("ditto:lam=0.5", "ditto:first=received"), **facts(client="1")
)
def ditto(
    setting: core.Setting,
    solve: local.Solver,
    *,
    lam: NonNegative = 1.0,
    first: personal.First = "initial",
    server_lr: Positive = 1.0,
    weighting: common.Weighting = "samples",
) -> core.Algorithm:
    """Ditto: FedAvg, and a personal model v_i with direction g(v) + lam (v - x).

        v_i <- v_i - lr (g(v_i) + lam (v_i - x)),   J_i steps per round
        x   <- x + server_lr sum_i p_i (y_i - x)

    A client does twice the work of FedAvg's. `fedwin train --eval_clients` evaluates the personal models; a client that
    has not taken part has the server's.

    Args:
      lam: strength of the pull toward the server model; above 2 / lr, steps overshoot and personal models diverge.
      first: v_i before the first participation, 'initial' (x^0, as in the released code) or 'received' (the server
        model of that round).

    Source: Li et al., Ditto: Fair and Robust Federated Learning Through Personalization, 2021,
    https://arxiv.org/abs/2012.04221.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("ditto:lam=0.5") == testing.run_rounds("fedavg")  # the server model is FedAvg's
      True
    """

    def client(params, c):
        v, stats = personal.start(c.state, params, c, first)
        train = dataclasses.replace(solve, bound=lambda start, y: y)
        own = train(v, c._replace(stats=stats), local.proximal(lam, center=params))
        y = solve(params, c)  # last, because `client_models` takes the last training for that of what is sent
        message = {"delta": common.weighted_delta(y, params, c, weighting)}
        return y.update(message, state=personal.trained(own.params, own.stats, c.state))

    return core.algorithm(
        client,
        common.fedavg_server(server_lr),
        client_init=lambda params, id: personal.initial(setting, params),
        weighting=weighting,
        client_model=personal.read,
    )
