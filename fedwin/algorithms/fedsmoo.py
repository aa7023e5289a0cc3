"""FedSMOO: FedDyn whose local gradients are taken at sharpness-aware perturbations that the clients agree on.

The constraint that all perturbations are equal has dual variables: m_i of a client, m of the server. With rho = 0
FedSMOO is FedDyn with alpha = 1 / beta.

This is the rule of the authors' code (https://github.com/woodenchild95/FL-Simulator), which leaves the clients' last
perturbations out of m, because they are small; it has weighting=uniform, and clips directions at norm 10.
"""

from typing import NamedTuple

from fedwin import core, local, rules, tree
from fedwin.algorithms.common import Weighting
from fedwin.algorithms.fedgloss import pulled
from fedwin.algorithms.fedsam import perturbation
from fedwin.algorithms.registry import ALGORITHMS, facts
from fedwin.registry.ranges import NonNegative, Positive
from fedwin.tree import PyTree


class FedSMOOState(NamedTuple):
    """State of FedSMOO's server.

    Attributes:
      s: mean of all clients' q_i, like params.
      dual: m, like params.
    """

    s: PyTree
    dual: PyTree


class FedSMOORow(NamedTuple):
    """State of a client of FedSMOO.

    Attributes:
      q: q_i, the sum of the client's steps, like params.
      dual: m_i, like params.
    """

    q: PyTree
    dual: PyTree


def agreed_perturbation(rho, m) -> local.Rule:
    """Returns the local rule of FedSMOO without FedDyn's terms; it carries m_i from step to step.

    direction = g(y + eps),   eps = rho u / ||u||,   u = g(y) - m_i - m,   m_i <- m_i + eps - m
    """

    def rule(grad: rules.GradientFn, s: rules.Step) -> rules.RuleOutput:
        g = grad(s.params)
        eps = perturbation(s.params, tree.sub(tree.sub(g.value, s.carry), m), rho)
        dual = tree.sub(tree.add(s.carry, eps), m)
        return rules.RuleOutput(grad(tree.add(s.params, eps)).value, None, g, dual)

    return rule


@ALGORITHMS.register(
    "fedsmoo",
    paper=("sun2023dynamic", "acar2021federated", "foret2021sharpness"),
    instances=("fedsmoo:rho=0.05",),
    **facts(down="2", up="2", server="3", client="2"),
)
def fedsmoo(
    setting: core.Setting,
    solve: local.Solver,
    *,
    rho: NonNegative = 0.1,
    beta: Positive = 10.0,
    server_lr: Positive = 1.0,
    weighting: Weighting = "samples",
) -> core.Algorithm:
    """FedSMOO: direction g(y + eps) + (y - x + q_i) / beta, eps along g(y) - m_i - m, x = mean + s.

        y <- y - lr (g(y + eps) + (y - x + q_i) / beta),   eps = rho u / ||u||,   u = g(y) - m_i - m
        m_i <- m_i + eps - m in each local step,   q_i <- q_i + (y_i - x)
        m <- rho n / ||n||, n = sum_i p_i m_i,   s <- s + (1/K) sum_{i in S} (y_i - x)
        x <- x + server_lr (sum_i p_i y_i + s - x)

    Args:
      rho: radius of the perturbations, and the norm of m.
      beta: divisor of the pull to x and of q_i.

    Source: Sun et al., Dynamic Regularized Sharpness Aware Minimization in Federated Learning: Approaching Global
    Consistency and Smooth Landscape, 2023, https://arxiv.org/abs/2305.11584.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("fedsmoo:rho=0,beta=2.5")  # FedDyn with alpha = 0.4
      {'model': [3.004, 3.188, 3.05]}
    """

    def client(down, c):
        params, m = down
        y = solve(params, c, pulled(agreed_perturbation(rho, m), beta, c.state.q), carry=c.state.dual)
        delta, weight = tree.sub(y.params, params), core.aggregation_weight(c, weighting)
        message = {
            "delta": core.mean_step(delta, weight),
            "moved": core.DerivedFromStep(delta),
            "dual": core.mean(y.carry, weight),
        }
        return y.update(message, state=FedSMOORow(tree.add(c.state.q, delta), y.carry))

    def server(params, state, total, round):
        s = tree.axpy(1 / setting.num_clients, total["moved"].value, state.s)
        mean = total["dual"].value
        m = tree.scale(rho / (tree.norm(mean) + 1e-16), mean)
        return tree.axpy(server_lr, tree.add(total["delta"].value, s), params), FedSMOOState(s, m)

    zeros = tree.zeros_like
    return core.algorithm(
        client,
        server,
        broadcast=lambda params, state: (params, state.dual),
        init=lambda params: FedSMOOState(zeros(params), zeros(params)),
        client_init=lambda params, id: FedSMOORow(zeros(params), zeros(params)),
        weighting=weighting,
    )
