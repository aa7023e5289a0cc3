"""FedAvg, FedNova, FedExP, FedGMA: the server's step from the clients' steps.

FedNova weights clients independently of their numbers of local steps: a_i is the sum of the weights with which the
local gradients enter -d_i / lr. It is counted, by a unit gradient that the solver's optimizer is fed in every step:

    a_i = J                                            SGD
        = (J - rho (1 - rho^J) / (1 - rho)) / (1 - rho)          SGD with momentum rho
        = (1 - (1 - lr mu)^J) / (lr mu)                with a proximal term, rho = 0

Weight decay is ignored in a_i. With equal J_i FedNova is FedAvg.

FedExP with p_i = 1 / |S| (weighting=uniform) is the paper's sum_i ||d_i||^2 / (2 |S| (||d||^2 + eps)). eta = 1 in the
paper. The iterates oscillate, so the paper evaluates the mean of the last two: read it with --observe=wima:window=2.
The released code has p_i proportional to N_i, |S| eps in place of eps, and an eps that shrinks with the square of the
decaying client learning rate.

FedGMA's |S| is the number of clients that take part in the round, and Client.importance enters the mean alone.
'extra_step' reproduces released code, whose results equal FedAvg's within noise: x = sum_i p_i y_i, minus (eta_x / |S|)
times the clients' distances to it, where more than the threshold agree and the client is with the majority. (The
released code visits the clients one after another, which differs by eta_x^2.)
"""

from typing import Literal

import jax.numpy as jnp

from fedwin import core, local, tree
from fedwin.algorithms.common import ALGORITHMS, Weighting, fedavg_client, fedavg_server
from fedwin.errors import UserError
from fedwin.registry.ranges import NonNegative, Positive, Share


@ALGORITHMS.register(
    "fedavg",
    paper="mcmahan2017communication",
    instances=("fedavg", "fedavg:weighting=uniform,server_lr=0.5"),
    down="1",
    up="1",
    reported="1x",
    server="1",
    client="0",
)
def fedavg(
    setting: core.Setting, solve: local.Solver, *, server_lr: Positive = 1.0, weighting: Weighting = "samples"
) -> core.Algorithm:
    """FedAvg: x <- x + server_lr sum_i p_i (y_i - x).

    Source: McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data, 2017,
    https://arxiv.org/abs/1602.05629.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("fedavg")
      {'model': [3.916, 3.315, 3.169]}
    """
    return core.algorithm(fedavg_client(solve, weighting), fedavg_server(server_lr), weighting=weighting)


def is_sgd(optimizer) -> bool:
    """Returns whether an optimizer is linear in gradients and ignores parameters, as SGD with or without momentum is.

    Example:
      >>> import optax
      >>> is_sgd(optax.sgd(0.1, momentum=0.9)), is_sgd(optax.adam(0.1))
      (True, False)
    """

    def updates(gradients, at):
        state, out = optimizer.init(at), []
        for g in gradients:
            update, state = optimizer.update(g, state, at)
            out.append(update)
        return jnp.stack(out)

    g, h = jnp.array([1.0, -2.0, 0.5]), jnp.array([3.0, 0.25, 1.0])
    separate = updates(g, jnp.ones(())) + updates(h, jnp.full((), -3.0))
    return bool(jnp.allclose(separate, updates(g + h, jnp.full((), 5.0)), rtol=1e-4))


def has_memory(optimizer) -> bool:
    """Returns whether a second unit gradient gives another update than the first one, as momentum does."""
    gradient = jnp.ones(())
    first, state = optimizer.update(gradient, optimizer.init(gradient), gradient)
    second, _ = optimizer.update(gradient, state, gradient)
    return not bool(first == second)


def counter(optimizer, mu=0.0):
    """Returns a hook that counts a_i along local training.

    Returns:
      (carry, on_step) as local.Solver takes them; a_i = -carry[0] after the last step.
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
    down="1",
    up="1 + 1 number",
    server="1",
    client="0",
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

    Args:
      mu: proximal term of the clients (not with client momentum).
      tau_eff: 'a' = sum_i p_i a_i, or 'steps' = sum_i p_i J_i.

    Raises:
      UserError: when clients do not use SGD, or mu > 0 meets client momentum.

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


@ALGORITHMS.register("fedexp", paper="jhunjhunwala2023fedexp", down="1", up="1", server="1", client="0")
def fedexp(
    setting: core.Setting,
    solve: local.Solver,
    *,
    eps: Positive = 1e-3,
    server_lr: Positive = 1.0,
    weighting: Weighting = "samples",
) -> core.Algorithm:
    """FedExP: x <- x + server_lr max(1, sum_i p_i ||d_i||^2 / (2 ||d||^2 + 2 eps)) d, d = sum_i p_i (y_i - x).

        d_i = y_i - x,   d = sum_i p_i d_i
        x <- x + server_lr max(1, sum_i p_i ||d_i||^2 / (2 (||d||^2 + eps))) d

    Args:
      eps: bounds the extrapolation where the steps cancel, in units of ||d||^2.

    Source: Jhunjhunwala et al., FedExP: Speeding Up Federated Averaging via Extrapolation, 2023,
    https://arxiv.org/abs/2301.09604.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("fedexp:eps=0.5")
      {'model': [3.902, 3.203, 3.121]}
    """

    def client(params, c):
        y = solve(params, c)
        delta = tree.sub(y.params, params)
        weight = core.aggregation_weight(c, weighting)
        squared = core.DerivedFromStep(core.mean(tree.squared_norm(delta), weight))
        return y.update({"delta": core.mean_step(delta, weight), "squared_norm": squared})

    def server(params, state, total, round):
        delta = total["delta"].value
        ratio = total["squared_norm"].value.value / (2 * (tree.squared_norm(delta) + eps))
        return tree.axpy(server_lr * jnp.maximum(1, ratio), delta, params), state

    # The server sees every y_i and computes the norms itself: only the model travels.
    return core.algorithm(client, server, weighting=weighting, wire=lambda down, message: (down, message["delta"]))


# The default threshold of every mode.
THRESHOLDS = {"soft": 0.4, "hard": 0.4, "extra_step": 0.8}


def agreement_mask(signs, count, threshold, mode="soft"):
    """Computes the mask M from the clients' signs.

        A = |signs| / count,   M = 1 where A >= threshold, else A ('soft') or 0 ('hard')

    Args:
      signs: sum of the clients' signs, an array of any shape.
      count: number of clients, float [].
      threshold: agreement from which a coordinate is taken in full, in [0, 1].
      mode: 'soft' or 'hard'.
    """
    # Sums of signs are integers: comparing them instead of float means is exact.
    agreed = jnp.abs(signs) >= threshold * count - 1e-4
    disagreed = jnp.abs(signs) / count if mode == "soft" else jnp.zeros_like(signs)
    return jnp.where(agreed, jnp.ones_like(signs), disagreed)


@ALGORITHMS.register(
    "fedgma",
    paper="tenison2022gradient",
    instances=("fedgma", "fedgma:threshold=0.8,mode=hard", "fedgma:mode=extra_step"),
    degenerate={"threshold": 0},
    down="1",
    up="1",
    server="1 + 2 sums",
    client="0",
)
def fedgma(
    setting: core.Setting,
    solve: local.Solver,
    *,
    threshold: Share | None = None,
    mode: Literal["soft", "hard", "extra_step"] = "soft",
    extra_lr: NonNegative = 1e-4,
    server_lr: Positive = 1.0,
    weighting: Weighting = "samples",
) -> core.Algorithm:
    """FedGMA: x <- x + server_lr M sum_i p_i (y_i - x).

        A = |sum_i sign(y_i - x)| / |S|,   M = 1 where A >= threshold, else A ('soft') or 0 ('hard')
        x <- x + server_lr M sum_i p_i (y_i - x)

    Args:
      threshold: agreement from which a coordinate is taken in full; none = 0.4, or 0.8 for 'extra_step'.
      mode: 'soft', 'hard', or 'extra_step'.
      extra_lr: eta_x of 'extra_step'.

    Source: Tenison et al., Gradient Masked Averaging for Federated Learning, 2022, https://arxiv.org/abs/2201.11986.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("fedgma")  # the two clients disagree about the sign
      {'model': [7.0, 7.0, 7.0]}
      >>> testing.run_rounds("fedgma:threshold=0") == testing.run_rounds("fedavg")
      True
    """
    threshold = THRESHOLDS[mode] if threshold is None else threshold

    def client(params, c):
        y = solve(params, c, local.sgd)
        delta = tree.sub(y.params, params)
        sums = {"signs": tree.map(jnp.sign, delta), "count": jnp.ones((), float)}
        if mode == "extra_step":
            sums["up"] = tree.map(lambda d: jnp.maximum(d, 0), delta)
            sums["down"] = tree.map(lambda d: jnp.minimum(d, 0), delta)
            sums["moving"] = tree.map(lambda d: jnp.abs(jnp.sign(d)), delta)
        return y.update(
            {"delta": core.mean_step(delta, core.aggregation_weight(c, weighting)), "sums": core.DerivedFromStep(sums)}
        )

    def masked(params, total):
        sums = total["sums"].value
        mask = tree.map(lambda s: agreement_mask(s, sums["count"], threshold, mode), sums["signs"])
        return tree.axpy(server_lr, tree.mul(mask, total["delta"].value), params)

    def with_extra_step(params, total):
        sums = total["sums"].value
        count = sums["count"]

        def leaf(x, delta, signs, up, down, moving):
            majority = jnp.where(signs > 0, (moving + signs) / 2, (moving - signs) / 2)
            distance = jnp.where(signs > 0, up, down) - majority * delta
            step = jnp.where(jnp.abs(signs) > threshold * count + 1e-4, extra_lr / count * distance, 0)
            return (x + server_lr * delta - step).astype(x.dtype)

        return tree.map(leaf, params, total["delta"].value, *(sums[name] for name in ("signs", "up", "down", "moving")))

    def server(params, state, total, round):
        return (with_extra_step if mode == "extra_step" else masked)(params, total), state

    # The server sees every y_i and counts signs itself: only the model travels.
    return core.algorithm(client, server, weighting=weighting, wire=lambda down, message: (down, message["delta"]))
