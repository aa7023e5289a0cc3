"""FedMuon: Muon on the clients, started at the clients' mean momentum and aligned with the last round's mean gradient.

Matrices are all parameters with two or more axes; their last axis is the output, the others together the input. The
local optimizer is `optax.contrib.muon`: five Newton-Schulz steps in place of the decomposition, whose singular values
lie around 1, times sqrt(max(1, outputs / inputs)). It keeps (1 - beta) M, which has the same U V^T. Adam restarts in
every round, with b1 = 0.9, b2 = 0.95. Weight decay is decoupled, as in AdamW; 1 - alpha also applies to it.

Where the authors' code (https://github.com/junkangLiu0/FedMuon) differs: it takes Nesterov's form of the momentum,
beta M + g, ten times the learning rate for matrices (matrix_lr=10), gradients clipped at norm 10, and a fixed number of
steps for J_i; and it passes Mbar to a client only if the process that runs the client has run another before.
"""

from typing import NamedTuple

import optax
from optax.contrib import MuonState

from fedwin import core, local, rules, tree
from fedwin.algorithms import common
from fedwin.algorithms.fedavg_m import mean_gradient, step_with_length
from fedwin.algorithms.registry import ALGORITHMS, facts
from fedwin.local.optimizers import check_plain_sgd, muon, with_decoupled_decay
from fedwin.registry.ranges import Decay, Positive
from fedwin.tree import PyTree


class FedMuonState(NamedTuple):
    """State of FedMuon's server.

    Attributes:
      step: m, the last round's mean gradient, sum_i p_i (x - y_i) / sum_i p_i lr J_i, like params.
      momentum: Mbar, the mean of the clients' last momenta, like the matrices among params.
    """

    step: PyTree
    momentum: PyTree


def _is_muons(path, value) -> bool:
    """Whether a field of an optimizer's state is Muon's, not Adam's; a filter of optax."""
    return getattr(path[-1], "tuple_name", "") == MuonState.__name__


def momentum_of(state):
    """Returns the momentum in a state of `optax.contrib.muon`."""
    return optax.tree_utils.tree_get(state, "mu", filtering=_is_muons)


@ALGORITHMS.register(
    "fedmuon",
    paper="liu2025fedmuon",
    # The tests compare results up to rounding, which five Newton-Schulz steps enlarge by up to 3.4 ** 5.
    instances=("fedmuon:alpha=0.95,beta=0.9,matrix_lr=0.1",),
    **facts(down="2 + M numbers", up="1 + M + 1 numbers", server="2 + M"),
)
def fedmuon(
    setting: core.Setting,
    solve: local.Solver,
    *,
    alpha: Decay = 0.5,
    beta: Decay = 0.98,
    matrix_lr: Positive = 1.0,
    server_lr: Positive = 1.0,
    weighting: common.Weighting = "samples",
) -> core.Algorithm:
    """FedMuon: step -lr ((1 - alpha) U V^T + alpha m) with U S V^T = M, the momentum; m the last mean gradient.

    The momentum M of the matrices is also sent, down and up. `--weight_decay` is decoupled.

        M <- beta M + g(y),   M = Mbar at first
        y <- y - lr ((1 - alpha) U V^T + alpha m)            matrices
        y <- y - lr ((1 - alpha) a + alpha m)                other parameters: a is Adam's step
        m <- sum_i p_i (x - y_i) / sum_i p_i lr J_i,   x <- x + server_lr sum_i p_i (y_i - x),   Mbar <- sum_i p_i M_i

    Args:
      alpha: share of the last round's mean gradient in a local step.
      beta: decay of the momentum.
      matrix_lr: learning rate of matrices divided by that of other parameters; 10 in the authors' code.

    Raises:
      UserError: when another optimizer is set for the clients.

    Source: Liu et al., FedMuon: Accelerating Federated Learning with Matrix Orthogonalization, 2025,
    https://arxiv.org/abs/2510.27403.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("fedmuon", problem=testing.classification())
      {'model': [0.658, 0.289, 0.138]}
    """
    check_plain_sgd(solve, "fedmuon", "Muon")

    def optimizer(decay):
        local_muon = muon(decay, matrix_lr, beta=beta, nesterov=False, adam_b2=0.95)
        return optax.chain(local_muon, optax.scale(1 - alpha))

    solve = with_decoupled_decay(solve, optimizer)

    def client(down, c):
        params, step, momentum = down
        aligned = rules.heavy_ball(lambda s: tree.scale(-alpha * s.lr, step))
        start = optax.tree_utils.tree_set(solve.optimizer.init(params), _is_muons, mu=momentum)
        y = solve(params, c, aligned, optimizer=start)
        message = step_with_length(y, params, c, weighting)
        message["momentum"] = core.mean(momentum_of(y.optimizer), core.aggregation_weight(c, weighting))
        return y.update(message)

    def server(params, state, total, round):
        step = mean_gradient(total, state.step)
        return common.add_mean_step(params, total, server_lr), FedMuonState(step, total["momentum"].value)

    return core.algorithm(
        client,
        server,
        broadcast=lambda params, state: (params, state.step, state.momentum),
        init=lambda params: FedMuonState(tree.zeros_like(params), momentum_of(solve.optimizer.init(params))),
        weighting=weighting,
    )
