"""FedNova: normalised averaging, so that clients that take more steps do not pull harder.

    client   d_i = y_i - x,   a_i = sum of the weights with which the local gradients enter -d_i / lr
    server   x <- x + eta (sum_i p_i a_i) sum_i p_i d_i / a_i

    a_i = J                                            SGD
        = (J - rho (1 - rho^J) / (1 - rho)) / (1 - rho)          SGD with momentum rho
        = (1 - (1 - lr mu)^J) / (lr mu)                with a proximal term, rho = 0

a_i is counted rather than looked up: the solver's own optimiser is fed a unit gradient, step by step. Weight decay is
ignored in a_i, and the optimiser must be SGD, with or without momentum. With equal J_i this is FedAvg.

Wang et al., Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization, 2020,
https://arxiv.org/abs/2007.07481.
"""

import jax.numpy as jnp

from fedwin import core, local, tree
from fedwin.algorithms import common
from fedwin.algorithms.registry import ALGORITHMS
from fedwin.errors import UserError
from fedwin.registry import checks


def is_sgd(optimizer) -> bool:
    """Whether updates add up as gradients do, whatever the parameters: SGD, with or without momentum."""

    def updates(gradients, at):
        state, out = optimizer.init(at), []
        for g in gradients:
            update, state = optimizer.update(g, state, at)
            out.append(update)
        return jnp.stack(out)

    one, other = jnp.array([1.0, -2.0, 0.5]), jnp.array([3.0, 0.25, 1.0])
    apart = updates(one, jnp.ones(())) + updates(other, jnp.full((), -3.0))
    return bool(jnp.allclose(apart, updates(one + other, jnp.full((), 5.0)), rtol=1e-4))


def has_memory(optimizer) -> bool:
    """Whether a second unit gradient moves the optimiser differently from the first (momentum does)."""
    one = jnp.ones(())
    first, state = optimizer.update(one, optimizer.init(one), one)
    second, _ = optimizer.update(one, state, one)
    return not bool(first == second)


def counter(optimizer, mu=0.0):
    """Returns (carry, on_step) that count a_i along local training: a_i = -carry[0] at its end."""

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
    down="1",
    up="1 + 1 number",
    server="1",
    client="0",
)
def fednova(setting, solve, *, mu=0.0, tau_eff="a", server_lr=1.0, weighting="samples"):
    """FedNova: x <- x + server_lr tau_eff sum_i p_i (y_i - x) / a_i.

    Args:
      mu: proximal term of the clients (not together with momentum).
      tau_eff: 'a' = sum_i p_i a_i, or 'steps' = sum_i p_i J_i.

    Raises:
      UserError: when a hyper-parameter is out of range, clients do not use SGD, or mu > 0 meets client momentum.

    Source: https://arxiv.org/abs/2007.07481.
    """
    common.check("fednova", server_lr, weighting)
    checks.number("fednova", 0, mu=mu)
    checks.one_of("fednova", "tau_eff", tau_eff, ("a", "steps"))
    if not is_sgd(solve.optimizer):
        raise UserError("fednova: clients must use SGD, with or without momentum; set client_optimizer=sgd.")
    if mu and has_memory(solve.optimizer):
        raise UserError("fednova: mu > 0 is not defined with client momentum; set mu=0 or the momentum to 0.")

    def client(params, c):
        carry, on_step = counter(solve.optimizer, mu)
        y = solve(params, c, local.proximal(mu) if mu else local.sgd, carry=carry, on_step=on_step)
        norm = -y.carry[0]
        weight = core.weight(c, weighting)
        delta = tree.sub(y.params, params)
        message = {
            # A client without examples takes no step; its weight is 0, but 0/0 would survive that.
            "direction": core.mean(tree.scale(1 / jnp.where(norm > 0, norm, 1), delta), weight),
            "norm": core.mean(norm if tau_eff == "a" else y.steps, weight),
        }
        return y.update(message)

    def server(params, state, total, round):
        return tree.axpy(server_lr * total["norm"].value, total["direction"].value, params), state

    return core.algorithm(client, server, weighting=weighting)
