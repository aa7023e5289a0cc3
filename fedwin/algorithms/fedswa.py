"""FedSWA: the client rate falls within every round, and the server extrapolates the mean step; FedMoSWA adds controls.

The paper has p_i = 1 / |S| (weighting=uniform), rho = 0.1 and server_lr = 1.5. eta_j scales the whole step, with its
momentum and weight decay.

form=code is the released main_FedSWA.py instead: rho = 0 and server_lr = 1 (the server takes the mean), and FedSWA
starts at twice the client learning rate (peak = 2). Its --alg=MoFedSWA does not call its FedMoSWA, and uses a constant
rate: form=code,rho=1. The other script, main.py, is closer to the paper, with gamma = 0.1.

Unlike SCAFFOLD's control, FedMoSWA's m weights recent c_i more. c_i is a mean of gradients, for plain SGD the paper's
c_i - m + (x - y_i) / sum_j eta_j; it stays a gradient with momentum, weight decay and clipping. The paper has
gamma = 0.2; form=code has 0.4, but 1 in the first round, and divides x - y_i by J_i lr (1 + rho) / 2 instead of
sum_j eta_j, which is larger.
"""

from typing import Literal

import jax.numpy as jnp

from fedwin import core, local, rules, tree
from fedwin.algorithms import common
from fedwin.algorithms.registry import ALGORITHMS, facts
from fedwin.registry.ranges import Positive, Share

# Default values of every form: of both methods, and of one of them.
FORMS = {
    "paper": {"rho": 0.1, "server_lr": 1.5, "peak": 1.0, "gamma": 0.2},
    "code": {"rho": 0.0, "server_lr": 1.0, "peak": 2.0, "gamma": 0.4},
}


def with_defaults(form: str, **given: float | None) -> dict[str, float]:
    """Returns the given hyper-parameters, with those that are None replaced by the form's."""
    return {name: FORMS[form][name] if value is None else value for name, value in given.items()}


def rate_factor(s: rules.Step, rho, peak=1.0):
    """Computes the learning rate of a local step in units of the round's: peak (1 - (1 - rho) j / J).

    >>> step = rules.Step(None, None, None, None, j=2, steps=4, lr=0.1, weight_decay=0.0)
    >>> round(float(rate_factor(step, 0.1)), 3)
    0.55
    """
    return peak * (1 - (1 - rho) * s.j / s.steps)


def falling_rate(rho, peak=1.0):
    """Returns the hook of local training that shortens every step by its `rate_factor`; None if all factors are 1."""
    if rho == 1 and peak == 1:
        return None

    def on_step(carry, params, s: rules.Step, last):
        return carry, tree.axpy(rate_factor(s, rho, peak), tree.sub(params, s.params), s.params)

    return on_step


@ALGORITHMS.register("fedswa", paper="liu2025fedswa", degenerate={"rho": 1, "server_lr": 1}, **facts())
def fedswa(
    setting: core.Setting,
    solve: local.Solver,
    *,
    form: Literal["paper", "code"] = "paper",
    rho: Share | None = None,
    peak: Positive | None = None,
    server_lr: Positive | None = None,
    weighting: common.Weighting = "samples",
) -> core.Algorithm:
    """FedSWA: step j at the rate lr (1 - (1 - rho) j / J_i), x <- x + server_lr sum_i p_i (y_i - x).

        y <- y - peak lr (1 - (1 - rho) j / J_i) g(y),   j = 0, ..., J_i - 1
        x <- x + server_lr sum_i p_i (y_i - x)

    Args:
      form: default values of the 'paper' or of its released 'code'.
      rho: rate that a round ends at, in units of its first one; none = 0.1 ('paper') or 0 ('code').
      peak: rate of a round's first step, in units of the client learning rate; none = 1 ('paper') or 2 ('code').
      server_lr: the paper's alpha; none = 1.5 ('paper') or 1 ('code').

    Source: Liu et al., FedSWA: Improving Generalization in Federated Learning with Highly Heterogeneous Data via
    Momentum-Based Stochastic Controlled Weight Averaging, 2025, https://arxiv.org/abs/2507.20016.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("fedswa")
      {'model': [3.518, 3.121, 3.058]}
      >>> testing.run_rounds("fedswa:rho=1,server_lr=1") == testing.run_rounds("fedavg")
      True
    """
    used = with_defaults(form, rho=rho, peak=peak, server_lr=server_lr)
    client = common.fedavg_client(solve, weighting, on_step=falling_rate(used["rho"], used["peak"]))
    return core.algorithm(client, common.fedavg_server(used["server_lr"]), weighting=weighting)


def controlled(control, rho):
    """Returns SGD with a control, m - c_i; the gradients that it records are weighted by the rates.

    direction = g(y) + control,   recorded: rate_factor g(y)
    """

    def rule(grad: rules.GradientFn, s: rules.Step) -> rules.RuleOutput:
        g = grad(s.params)
        weighted = g._replace(value=tree.scale(rate_factor(s, rho), g.value))
        return rules.RuleOutput(tree.add(g.value, control), None, weighted)

    return rule


@ALGORITHMS.register("fedmoswa", paper="liu2025fedswa", **facts(down="2", up="2", server="2", client="1"))
def fedmoswa(
    setting: core.Setting,
    solve: local.Solver,
    *,
    form: Literal["paper", "code"] = "paper",
    rho: Share | None = None,
    gamma: Share | None = None,
    server_lr: Positive | None = None,
    weighting: common.Weighting = "samples",
) -> core.Algorithm:
    """FedMoSWA: FedSWA with direction g(y) - c_i + m, m <- m + gamma sum_i p_i (c_i - m).

        y   <- y - eta_j (g(y) - c_i + m),   eta_j = lr (1 - (1 - rho) j / J_i)
        c_i <- sum_j eta_j g_j / sum_j eta_j
        m   <- m + gamma sum_i p_i (c_i - m),   x <- x + server_lr sum_i p_i (y_i - x)

    Args:
      form: the rule and the default values of the 'paper' or of its released 'code'.
      rho: rate that a round ends at, in units of its first one; none = 0.1 ('paper') or 0 ('code').
      gamma: weight of the cohort's controls in m; none = 0.2 ('paper') or 0.4 ('code').
      server_lr: the paper's alpha; none = 1.5 ('paper') or 1 ('code').

    Source: https://arxiv.org/abs/2507.20016.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("fedmoswa")
      {'model': [3.518, 3.98, 3.321]}
    """
    used = with_defaults(form, rho=rho, gamma=gamma, server_lr=server_lr)
    rho, is_code = used["rho"], form == "code"

    def client(down, c):
        params, m = down
        control = tree.sub(m, c.state)
        y = solve(params, c, controlled(control, rho), grad=True, on_step=falling_rate(rho))
        # The mean rate of the J_i steps, and that of the released code, in units of the first.
        mean_rate, halfway = (1 + rho + (1 - rho) / jnp.maximum(y.steps, 1)) / 2, (1 + rho) / 2
        new = tree.scale(1 / mean_rate, y.grad)
        if is_code:
            new = tree.sub(tree.scale(mean_rate / halfway, tree.add(new, control)), control)
        weight = core.aggregation_weight(c, weighting)
        message = {"delta": common.weighted_delta(y, params, c, weighting), "control": core.mean(new, weight)}
        return y.update(message, state=new)

    def server(params, m, total, round):
        gamma = jnp.where(round == 0, 1.0, used["gamma"]) if is_code else used["gamma"]
        m = tree.lerp(gamma, m, total["control"].value)
        return common.add_mean_step(params, total, used["server_lr"]), m

    return core.algorithm(
        client,
        server,
        broadcast=lambda params, m: (params, m),
        init=tree.zeros_like,
        client_init=lambda params, id: tree.zeros_like(params),
        weighting=weighting,
    )
