"""FedGloSS: sharpness-aware minimization on the server, with the last pseudo-gradient and FedDyn's dual variables.

This is the paper's rule with sigma_i = -q_i / beta and sigma = -s / beta. x is evaluated, not z. Both radii grow
linearly from rho0 in the first `ramp` rounds.

Without perturbations FedGloSS is FedDyn with alpha = 1 / beta, at eta = 1.

Where the authors' code (https://github.com/pietrocagnasso/fedgloss) differs: it also divides the sum in s by the
cohort's size |S|, so sigma is no longer the mean of the clients' sigma_i (dual='cohort' does the same); and while the
radii grow, its server's radius is the final local one. The code updates q_i after every local epoch, measures the pull
from the model at the start of that epoch, and is run with one epoch.
"""

from typing import Literal, NamedTuple

import jax.numpy as jnp

from fedwin import core, local, rules, tree
from fedwin.algorithms.common import Weighting
from fedwin.algorithms.fedsam import sharpness_aware
from fedwin.algorithms.registry import ALGORITHMS, facts
from fedwin.registry.ranges import NonNegative, NonNegativeInt, Positive
from fedwin.tree import PyTree


class FedGloSSState(NamedTuple):
    """State of FedGloSS's server.

    Attributes:
      s: mean of all clients' q_i, like params.
      perturbation: z - x, like params.
    """

    s: PyTree
    perturbation: PyTree


def pulled(inner: local.Rule, beta, q) -> local.Rule:
    """Returns a rule with the two terms of the augmented Lagrangian.

    direction = inner + (y - z + q_i) / beta
    """

    def rule(grad: rules.GradientFn, s: rules.Step) -> rules.RuleOutput:
        output = inner(grad, s)
        pull = tree.add(tree.sub(s.params, s.start), q)
        return output._replace(direction=tree.axpy(1 / beta, pull, output.direction))

    return rule


@ALGORITHMS.register(
    "fedgloss",
    paper=("caldarola2025beyond", "acar2021federated", "foret2021sharpness"),
    instances=("fedgloss:rho=0.1,local_rho=0.05,ramp=2", "fedgloss:rho=0.1,local_rho=0,dual=cohort"),
    **facts(server="3", client="1"),
)
def fedgloss(
    setting: core.Setting,
    solve: local.Solver,
    *,
    rho: NonNegative = 0.15,
    local_rho: NonNegative = 0.15,
    beta: Positive = 10.0,
    ramp: NonNegativeInt = 0,
    rho0: NonNegative = 0.001,
    dual: Literal["clients", "cohort"] = "clients",
    server_lr: Positive = 1.0,
    weighting: Weighting = "samples",
) -> core.Algorithm:
    """FedGloSS: direction g(y + eps) + (y - z + q_i) / beta from z = x + rho D / ||D||, D the last pseudo-gradient.

        y <- y - lr (g(y + eps) + (y - z + q_i) / beta),   eps = local_rho_t g(y) / ||g(y)||,   z = x + rho_t D / ||D||
        q_i <- q_i + (y_i - z),   rho_t = rho0 + (rho - rho0) min(t / ramp, 1)
        D <- sum_i p_i (z - y_i),   s <- s + (1/K) sum_{i in S} (y_i - z),   x <- x - server_lr D + s

    Args:
      rho: radius of the server's perturbation.
      local_rho: radius of the clients' perturbations; 0 takes one gradient per local step.
      beta: divisor of the pull to z and of the dual variables.
      ramp: rounds in which both radii grow from rho0; the authors' scripts have 2,000 of 10,000 on CIFAR-10.
      rho0: radius of the first round if ramp > 0.
      dual: the sum in s is divided by K ('clients'), or by K |S| as in the authors' code ('cohort').

    Source: Caldarola et al., Beyond Local Sharpness: Communication-Efficient Global Sharpness-aware Minimization for
    Federated Learning, 2025, https://arxiv.org/abs/2412.03752.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("fedgloss:rho=0,local_rho=0,beta=2.5")  # FedDyn with alpha = 0.4
      {'model': [3.004, 3.188, 3.05]}
      >>> testing.run_rounds("fedgloss:rho=0.1,local_rho=0,beta=2.5")
      {'model': [3.004, 3.301, 3.018]}
    """

    def radius(final, round):
        return rho0 + (final - rho0) * jnp.minimum(jnp.asarray(round, float) / ramp, 1) if ramp else final

    def client(z, c):
        inner = sharpness_aware(radius(local_rho, c.round)) if local_rho else local.sgd
        y = solve(z, c, pulled(inner, beta, c.state))
        delta = tree.sub(y.params, z)
        # Not a core.mean_step: it is relative to z, not to the server model.
        message = {
            "from_perturbed": core.mean(delta, core.aggregation_weight(c, weighting)),
            "moved": core.DerivedFromStep(core.mean(delta, 1.0)),
        }
        return y.update(message, state=tree.add(c.state, delta))

    def server(params, state, total, round):
        delta, moved = total["from_perturbed"].value, total["moved"].value
        count = 1 if dual == "clients" else jnp.maximum(moved.weight, 1)
        s = tree.axpy(1 / (setting.num_clients * count), moved.total, state.s)
        scale = -radius(rho, round + 1) / (tree.norm(delta) + 1e-16)
        params = tree.add(tree.axpy(server_lr, delta, params), s)
        return params, FedGloSSState(s, tree.scale(scale, delta))

    return core.algorithm(
        client,
        server,
        broadcast=lambda params, state: tree.add(params, state.perturbation),
        init=lambda params: FedGloSSState(tree.zeros_like(params), tree.zeros_like(params)),
        client_init=lambda params, id: tree.zeros_like(params),
        weighting=weighting,
    )
