"""Amplified SCAFFOLD: controls over a whole period of participation, and a longer step at its end.

P is the number of rounds in which all clients take part equally often, such as a cycle of --sampling=cyclic. With P = 1
this is SCAFFOLD with the server rate eta gamma.

A client's row holds its mean gradient of the current period, which becomes its c_i when it takes part in a later one;
until then the server adds the changes of these means to a sum that becomes c when the period ends. So c_i and c have
the paper's values in every round, and no client has to be reached at the end of a period. Rounds without clients count.

In the authors' code (https://github.com/MingruiLiu-ML-Lab/FL-under-Periodic-Participation) means over cohorts are
unweighted (--weighting=uniform), and the local rate of the synthetic experiments is its flag divided by gamma.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedwin import core, local, tree
from fedwin.algorithms import common
from fedwin.algorithms.registry import ALGORITHMS, facts
from fedwin.registry.ranges import Positive, PositiveInt
from fedwin.tree import PyTree


class AmplifiedState(NamedTuple):
    """State of Amplified SCAFFOLD's server.

    Attributes:
      control: c, constant during a period, like params.
      next_control: (1/K) sum_i c_i as it would be if the period ended now, like params.
      start: z, the model at the start of the period, like params.
    """

    control: PyTree
    next_control: PyTree
    start: PyTree


class AmplifiedRow(NamedTuple):
    """State of one of Amplified SCAFFOLD's clients, as of its last participation.

    Attributes:
      control: c_i during that period, like params.
      mean: mean gradient over its local steps in that period, c_i from the next one on, like params.
      steps: number of these local steps, float [].
      period: that period's number, -1 before the first, int32 [].
    """

    control: PyTree
    mean: PyTree
    steps: jax.Array
    period: jax.Array


@ALGORITHMS.register(
    "amplified_scaffold",
    paper=("crawshaw2024federated", "karimireddy2020scaffold"),
    instances=("amplified_scaffold:period=2,gamma=1.2",),
    warmup_horizon="period",
    **facts(down="2", up="2", server="4", client="2 + 2 numbers"),
)
def amplified_scaffold(
    setting: core.Setting,
    solve: local.Solver,
    *,
    period: PositiveInt | None = None,
    gamma: Positive = 1.5,
    server_lr: Positive = 1.0,
    weighting: common.Weighting = "samples",
) -> core.Algorithm:
    """Amplified SCAFFOLD: direction g(y) - c_i + c, x = z + gamma (x - z) after each period, z the model at its start.

    With P = period rounds, c_i the client's mean gradient in the last period in which it took part:

        y <- y - lr (g(y) - c_i + c),   c_i, c constant during a period
        x <- x + server_lr sum_i p_i (y_i - x)
        x <- z + gamma (x - z),   c <- (1/K) sum_i c_i             after every P rounds

    Args:
      period: P; none = ceil(K / |S|), the cycle of --sampling=cyclic without options.
      gamma: length of the step of a period; 1 leaves x unchanged.

    Source: Crawshaw and Liu, Federated Learning under Periodic Client Participation and Heterogeneous Data: A New
    Communication-Efficient Algorithm and Analysis, 2024, https://arxiv.org/abs/2410.23131.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("amplified_scaffold:period=2,gamma=1.5", rounds=4)["model"]
      [3.916, 3.025, 3.002, 3.008]
    """
    if period is None:
        drawn = setting.clients_per_round if setting.sampling is None else setting.sampling.expected
        period = math.ceil(setting.num_clients / drawn - 1e-9)

    def client(down, c):
        params, control = down
        row, number = c.state, c.round // period
        later = number != row.period
        own = tree.where(later, row.mean, row.control)
        y = solve(params, c, local.shift(tree.sub(control, own)), grad=True)
        steps = jnp.where(later, 0, row.steps) + y.steps
        mean = tree.lerp(y.steps / jnp.maximum(steps, 1), tree.where(later, y.grad, row.mean), y.grad)
        message = {
            "delta": common.weighted_delta(y, params, c, weighting),
            # In either case the server's sum has counted row.mean for this client so far.
            "drift": tree.scale(1 / setting.num_clients, tree.sub(mean, row.mean)),
        }
        return y.update(message, state=AmplifiedRow(own, mean, steps, number))

    def server(params, state, total, round):
        # Not the model stored a period ago: a wrapper may have changed the model since.
        start = tree.where(round % period == 0, params, state.start)
        delta = tree.where(total["delta"].weight > 0, total["delta"].value, tree.zeros_like(params))
        params = tree.axpy(server_lr, delta, params)
        next_control = tree.add(state.next_control, total["drift"])
        ends = (round + 1) % period == 0
        if gamma != 1:
            params = tree.where(ends, tree.axpy(gamma, tree.sub(params, start), start), params)
        return params, AmplifiedState(tree.where(ends, next_control, state.control), next_control, start)

    def init(params):
        return AmplifiedState(tree.zeros_like(params), tree.zeros_like(params), tree.map(jnp.copy, params))

    def client_init(params, id):
        never = jnp.full((), -1, jnp.int32)
        return AmplifiedRow(tree.zeros_like(params), tree.zeros_like(params), jnp.zeros((), float), never)

    algorithm = core.algorithm(
        client,
        server,
        broadcast=lambda params, state: (params, state.control),
        init=init,
        client_init=client_init,
        weighting=weighting,
    )
    return algorithm._replace(steps_without_clients=True)
