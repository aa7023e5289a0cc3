"""Bias-corrected FedMuon: SCAFFOLD's controls inside the orthogonalization of Muon on the clients.

The mean of orthogonalized local momenta is not the orthogonalized mean, so FedAvg with Muon on the clients may stall
where their gradients do not vanish. Matrices are all parameters with two or more axes; their last axis is the output,
the others together the input. Arrays of one axis are divided by their norm, as in a public reproduction of the paper
(https://github.com/HiraNayak/FedMuon). The paper's server averages over all K clients, with zero steps outside the
cohort S: weighting=uniform and server_lr=|S|/K.
"""

from typing import NamedTuple

import jax.numpy as jnp
import optax

from fedwin import core, local, tree
from fedwin.algorithms import common
from fedwin.algorithms.registry import ALGORITHMS, facts
from fedwin.algorithms.scaffold import controlled
from fedwin.local.optimizers import check_plain_sgd, with_decoupled_decay
from fedwin.registry.ranges import Decay, NonNegativeInt, Positive
from fedwin.tree import PyTree

# Coefficients of Muon's Newton-Schulz steps.
A, B, C = 3.4445, -4.7750, 2.0315


class CorrectedState(NamedTuple):
    """State of a client's optimizer.

    Attributes:
      momentum: M, like params.
      shift: C - C_i of the round, like params.
    """

    momentum: PyTree
    shift: PyTree


def orthogonalized(x, steps: int):
    """Returns U V^T of a matrix U S V^T, [..., outputs], by Newton-Schulz steps from x / ||x||; vectors stay there."""
    unit = x / jnp.maximum(jnp.max(jnp.abs(x)), jnp.finfo(x.dtype).tiny)  # squares of small numbers are 0
    unit = unit / jnp.maximum(jnp.sqrt(jnp.sum(jnp.square(unit))), 1)
    if x.ndim < 2:
        return unit
    m = unit.reshape(-1, x.shape[-1])
    m = m.T if (tall := m.shape[0] > m.shape[1]) else m
    for _ in range(steps):
        s = m @ m.T
        m = A * m + (B * s + C * s @ s) @ m
    return (m.T if tall else m).reshape(x.shape)


def corrected_muon(beta: float, steps: int, weight_decay: float) -> optax.GradientTransformation:
    """Returns the clients' optimizer at unit learning rate; its state is a CorrectedState."""

    def update(g, state, params):
        momentum = tree.lerp(1 - beta, state.momentum, g)
        step = tree.map(lambda x: -orthogonalized(x, steps), tree.add(momentum, state.shift))
        return tree.axpy(-weight_decay, params, step), state._replace(momentum=momentum)

    return optax.GradientTransformation(lambda params: CorrectedState(*[tree.zeros_like(params)] * 2), update)


@ALGORITHMS.register(
    "fedmuon_bc",
    paper="takezawa2025fedmuon",
    instances=("fedmuon_bc:newton_schulz=1",),
    **facts(down="2", up="2", server="2", client="1"),
)
def fedmuon_bc(
    setting: core.Setting,
    solve: local.Solver,
    *,
    beta: Decay = 0.9,
    newton_schulz: NonNegativeInt = 5,
    server_lr: Positive = 1.0,
    weighting: common.Weighting = "samples",
) -> core.Algorithm:
    """Bias-corrected FedMuon: step -lr U V^T with U S V^T = M_i - C_i + C, where C_i is M_i of the client's last round.

        M_i <- beta M_i + (1 - beta) g(y),   y <- y - lr U V^T,   M_i = C_i at first, and C_i <- M_i at the end
        x <- x + server_lr sum_i p_i (y_i - x),   C <- C + (1/K) sum_{i in S} (C_i+ - C_i)

    The singular values of a step are around the learning rate, whatever the gradients. `--weight_decay` is decoupled.

    Args:
      beta: weight of the momentum; the paper's alpha is 1 - beta.
      newton_schulz: steps that compute U V^T; 0 leaves the momentum divided by its norm, which also converges.

    Raises:
      UserError: when another optimizer is set for the clients.

    Source: Takezawa et al., FedMuon: Federated Learning with Bias-corrected LMO-based Optimization, 2025,
    https://arxiv.org/abs/2509.26337.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("fedmuon_bc:beta=0.5", rounds=5)  # Muon alone stays at 7, where gradients differ in sign
      {'model': [7.0, 5.25, 4.0, 3.25, 3.01]}
    """
    check_plain_sgd(solve, "fedmuon_bc", "Muon")
    solve = with_decoupled_decay(solve, lambda decay: corrected_muon(beta, newton_schulz, decay))

    def client(down, c):
        params, control = down
        y = solve(params, c, optimizer=CorrectedState(c.state, tree.sub(control, c.state)))
        new_control = y.optimizer.momentum
        message = {
            "delta": common.weighted_delta(y, params, c, weighting),
            "drift": tree.scale(1 / setting.num_clients, tree.sub(new_control, c.state)),
        }
        return y.update(message, state=new_control)

    return controlled(client, server_lr, weighting)
