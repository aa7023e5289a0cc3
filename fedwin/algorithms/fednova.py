"""FedNova: normalized averaging, which weights clients independently of their numbers of local steps.

a_i is the sum of the weights with which the local gradients enter (x - y_i) / lr:

    a_i = J                                            SGD
        = (J - rho (1 - rho^J) / (1 - rho)) / (1 - rho)          SGD with momentum rho
        = (1 - (1 - lr mu)^J) / (lr mu)                with a proximal term, rho = 0

It is counted, not computed in closed form: the solver's own optimizer is fed a unit gradient in every step. Weight
decay is ignored in a_i, and the optimizer must be SGD, with or without momentum. With equal J_i, tau_eff=a is FedAvg.
"""

from typing import Literal

import jax.numpy as jnp

from fedwin import core, local, tree
from fedwin.algorithms.common import Weighting
from fedwin.algorithms.registry import ALGORITHMS, facts
from fedwin.errors import UserError
from fedwin.local.optimizers import has_memory, is_sgd
from fedwin.registry.ranges import NonNegative, Positive


def counter(optimizer, mu=0.0):
    """Returns (carry, on_step), as local.Solver takes them, that count a_i with a proximal term mu.

    a_i = -carry[0] after the last step.
    """

    def on_step(carry, params, s: local.Step, last):
        z, state = carry
        update, state = optimizer.update(1 + mu * s.lr * z, state, z)
        return (z + update, state), params

    zero = jnp.zeros(())
    return (zero, optimizer.init(zero)), on_step


@ALGORITHMS.register(
    "fednova",
    paper="wang2020tackling",
    instances=("fednova", "fednova:mu=0.5,tau_eff=steps"),
    **facts(up="1 + 1 number"),
)
def fednova(
    setting: core.Setting,
    solve: local.Solver,
    *,
    mu: NonNegative = 0.0,
    tau_eff: Literal["a", "steps"] = "a",
    server_lr: Positive = 1.0,
    weighting: Weighting = "samples",
) -> core.Algorithm:
    """FedNova: x <- x + server_lr tau_eff sum_i p_i (y_i - x) / a_i.

        x <- x + server_lr tau_eff sum_i p_i (y_i - x) / a_i,   tau_eff = sum_i p_i a_i

    Args:
      mu: proximal term of the clients (not with client momentum).
      tau_eff: 'a' = sum_i p_i a_i, or 'steps' = sum_i p_i J_i.

    Raises:
      UserError: when clients do not use SGD, or mu > 0 is combined with client momentum.

    Source: Wang et al., Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization, 2020,
    https://arxiv.org/abs/2007.07481.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("fednova") == testing.run_rounds("fedavg")  # all clients take five steps
      True
    """
    if not is_sgd(solve.optimizer):
        raise UserError("fednova: clients must use SGD, with or without momentum; set client_optimizer=sgd.")
    if mu and has_memory(solve.optimizer):
        raise UserError("fednova: mu > 0 is not defined with client momentum; set mu=0 or the momentum to 0.")

    def client(params, c):
        carry, on_step = counter(solve.optimizer, mu)
        y = solve(params, c, local.proximal(mu) if mu else local.sgd, carry=carry, on_step=on_step)
        norm = -y.carry[0]
        weight = core.aggregation_weight(c, weighting)
        delta = tree.sub(y.params, params)
        message = {
            # A client without examples takes no step and has weight 0, but 0 * (0/0) would be NaN.
            "direction": core.mean(tree.scale(1 / jnp.where(norm > 0, norm, 1), delta), weight),
            "norm": core.mean(norm if tau_eff == "a" else y.steps, weight),
        }
        return y.update(message)

    def server(params, state, total, round):
        return tree.axpy(server_lr * total["norm"].value, total["direction"].value, params), state

    return core.algorithm(client, server, weighting=weighting)
