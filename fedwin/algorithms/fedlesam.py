"""FedLESAM: sharpness-aware minimization whose perturbation follows the path of the server, not the client's gradient.

x moved from a_i to its current value along descent directions of the global loss, so a_i - x estimates the ascent of
global sharpness-aware minimization. It is constant over a round, so a local step takes one gradient. At its first
participation a client has no a_i and perturbs nothing.

The authors' code (https://github.com/MediaBrain-SJTU/FedLESAM) has the server's last step in place of x - a_i, which
is the same for all clients, and moves all entries of the j-th parameter array by the j-th number of that step.
"""

import jax.numpy as jnp

from fedwin import core, local, rules, tree
from fedwin.algorithms import common, personal
from fedwin.algorithms.fedsam import perturbation
from fedwin.algorithms.registry import ALGORITHMS, facts
from fedwin.registry.ranges import NonNegative, Positive


def perturbed(eps) -> local.Rule:
    """Returns SGD with gradients taken at a constant offset: direction = g(y + eps)."""

    def rule(grad: rules.GradientFn, s: rules.Step) -> rules.RuleOutput:
        g = grad(tree.add(s.params, eps))
        return rules.RuleOutput(g.value, None, g)

    return rule


@ALGORITHMS.register(
    "fedlesam",
    paper=("fan2024locally", "foret2021sharpness"),
    instances=("fedlesam:rho=0.05",),
    degenerate={"rho": 0},
    **facts(client="1"),
)
def fedlesam(
    setting: core.Setting,
    solve: local.Solver,
    *,
    rho: NonNegative = 0.1,
    server_lr: Positive = 1.0,
    weighting: common.Weighting = "samples",
) -> core.Algorithm:
    """FedLESAM: direction g(y + rho (a_i - x) / ||a_i - x||), a_i the model received last time.

        y <- y - lr g(y + rho (a_i - x) / ||a_i - x||),   a_i <- x
        x <- x + server_lr sum_i p_i (y_i - x)

    Source: Fan et al., Locally Estimated Global Perturbations are Better than Local Perturbations for Federated
    Sharpness-aware Minimization, 2024, https://arxiv.org/abs/2405.18890.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("fedlesam:rho=0.1")
      {'model': [3.916, 3.249, 3.106]}
    """

    def client(params, c):
        back = tree.sub(c.state.params, params)
        eps = perturbation(params, tree.where(c.state.seen, back, tree.zeros_like(params)), rho)
        y = solve(params, c, perturbed(eps))
        message = {"delta": common.weighted_delta(y, params, c, weighting)}
        return y.update(message, state=personal.PersonalModel(params, (), jnp.ones((), bool)))

    return core.algorithm(
        client,
        common.fedavg_server(server_lr),
        client_init=lambda params, id: personal.PersonalModel(params, (), jnp.zeros((), bool)),
        weighting=weighting,
    )
