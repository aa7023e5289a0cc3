"""Ditto and APFL: clients that keep a personal model.

Ditto: both models take the same mini-batches, and x is the received model during the whole round, as in the paper's
Algorithm 1 (with s = r) and in the authors' code. lam = 0 makes v_i purely local models, a large lam keeps them at x.
v_i is never sent, so bounds on the step (`--wrap=clip`) do not apply to it. The released code's search of lam in
{0.1, 1, 2} by the validation loss (`dynamic_lam`) is not implemented.

APFL: v_i and alpha_i stay with the client; g(y) and g(u) are gradients on the same mini-batch. The authors' FedTorch
mixes the outputs of two networks instead of their parameters, updates alpha_i after both steps with
alpha_i grad_v + (1 - alpha_i) grad_y in place of g(u), and adds 0.02 alpha_i to the slope. FedJAX omits the factor
alpha_i in the step of v, learns one alpha per parameter array, in every step and by the client optimizer, and starts
v_i at the received model.
"""

import dataclasses
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from fedwin import core, local, tree
from fedwin.algorithms.common import ALGORITHMS, Weighting, fedavg_server, weighted_delta
from fedwin.core import Variables
from fedwin.registry.ranges import NonNegative, Positive, Share
from fedwin.tree import PyTree

# The personal model before a client's first participation: x^0, or the server model that it receives there.
First = Literal["initial", "received"]


class PersonalModel(NamedTuple):
    """A model that stays with its client.

    Attributes:
      params: v_i, like the server model's.
      stats: its statistics, () for a model without any.
      seen: whether the client has taken part, bool [].
    """

    params: PyTree
    stats: PyTree
    seen: jax.Array


def untrained(setting: core.Setting, params) -> PersonalModel:
    """Returns a client's personal model before its first participation; params is x^0."""
    stats = () if setting.model is None else jax.eval_shape(setting.model.init, jax.random.key(0)).stats
    # Statistics are read once the client has taken part: only their shapes matter here.
    return PersonalModel(params, tree.map(lambda x: jnp.zeros(x.shape, x.dtype), stats), jnp.zeros((), bool))


def start(own: PersonalModel, params, c: core.Client, first: str) -> Variables:
    """Returns the model that a client's personal training continues from; params is the received server model."""
    v = own.params if first == "initial" else tree.where(own.seen, own.params, params)
    return Variables(v, tree.where(own.seen, own.stats, c.stats))


def trained(params, stats, before: PersonalModel) -> PersonalModel:
    """Returns the personal model after training; stats () keeps those from before, for losses that return none."""
    return PersonalModel(params, before.stats if tree.is_empty(stats) else stats, jnp.ones((), bool))


def personal_model(model: Variables, own: PersonalModel) -> Variables:
    """Returns the personal model, or the server's for a client that has not taken part."""
    return Variables(tree.where(own.seen, own.params, model.params), tree.where(own.seen, own.stats, model.stats))


@ALGORITHMS.register(
    "ditto",
    paper="li2021ditto",
    instances=("ditto:lam=0.5", "ditto:first=received"),
    down="1",
    up="1",
    server="1",
    client="1",
)
def ditto(
    setting: core.Setting,
    solve: local.Solver,
    *,
    lam: NonNegative = 1.0,
    first: First = "initial",
    server_lr: Positive = 1.0,
    weighting: Weighting = "samples",
) -> core.Algorithm:
    """Ditto: FedAvg, and a personal model v_i with direction g(v) + lam (v - x).

        v_i <- v_i - lr (g(v_i) + lam (v_i - x)),   J_i steps per round
        x   <- x + server_lr sum_i p_i (y_i - x)

    A client computes twice as much as FedAvg's. `fedwin train --eval_clients` evaluates the personal models; a client
    that has not taken part has the server's.

    Args:
      lam: strength of the pull towards the server model.
      first: v_i before the first participation, 'initial' (x^0, as in the released code) or 'received' (the server
        model of that round).

    Source: Li et al., Ditto: Fair and Robust Federated Learning Through Personalization, 2021,
    https://arxiv.org/abs/2012.04221.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("ditto:lam=0.5") == testing.run_rounds("fedavg")  # the server model is FedAvg's
      True
    """

    def client(params, c):
        y = solve(params, c)
        v, stats = start(c.state, params, c, first)
        train = dataclasses.replace(solve, bound=lambda start, y: y)
        own = train(v, c._replace(stats=stats), local.proximal(lam, center=params))
        message = {"delta": weighted_delta(y, params, c, weighting)}
        return y.update(message, state=trained(own.params, own.stats, c.state))

    return core.algorithm(
        client,
        fedavg_server(server_lr),
        client_init=lambda params, id: untrained(setting, params),
        weighting=weighting,
        client_model=personal_model,
    )


class APFLRow(NamedTuple):
    """State of one of APFL's clients.

    Attributes:
      own: v_i, and the statistics of the mixture.
      alpha: its weight in the mixture, float [].
    """

    own: PersonalModel
    alpha: jax.Array


def mixture(model: Variables, row: APFLRow) -> Variables:
    """Returns alpha_i v_i + (1 - alpha_i) x, or x for a client that has not taken part."""
    v = personal_model(model, row.own)
    return v._replace(params=tree.lerp(row.alpha, model.params, v.params))


@ALGORITHMS.register(
    "apfl",
    paper="deng2020adaptive",
    instances=("apfl:adaptive=round", "apfl:alpha=0.25,first=received"),
    down="1",
    up="1",
    server="1",
    client="1 + mixing weight",
)
def apfl(
    setting: core.Setting,
    solve: local.Solver,
    *,
    alpha: Share = 0.5,
    adaptive: Literal["none", "round", "step"] = "none",
    first: First = "initial",
    server_lr: Positive = 1.0,
    weighting: Weighting = "samples",
) -> core.Algorithm:
    """APFL: FedAvg, and a local model v_i trained through the mixture u = alpha v_i + (1 - alpha) y.

        v_i <- v_i - lr alpha g(u),   u = alpha v_i + (1 - alpha) y;   alpha <- alpha - lr <v_i - y, g(u)>
        x   <- x + server_lr sum_i p_i (y_i - x)

    A client computes twice as much as FedAvg's. `fedwin train --eval_clients` evaluates the mixtures with x; a client
    that has not taken part has the server model.

    Args:
      alpha: weight of the local model in the mixture (its first value, if adaptive).
      adaptive: when alpha is learned: 'none', 'round' (in the first local step of a round) or 'step' (in every step).
      first: v_i before the first participation, 'initial' (x^0, as in the paper) or 'received' (the server model of
        that round).

    Source: Deng et al., Adaptive Personalized Federated Learning, 2020, https://arxiv.org/abs/2003.13461.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("apfl:alpha=0.25") == testing.run_rounds("fedavg")  # the server model is FedAvg's
      True
    """

    def on_step(info):
        def mixed_step(carry, params, s: local.Step, last):
            v, stats, optimizer, weight = carry
            g = solve.gradient_at(stats, s.batch, s.key, info)(tree.lerp(weight, s.params, v))
            step = tree.scale(weight, g.value)
            new, optimizer = solve.apply_step(s._replace(params=v), step, None, optimizer)
            if adaptive != "none":
                slope = sum(map(jnp.vdot, jax.tree.leaves(tree.sub(v, s.params)), jax.tree.leaves(g.value)))
                learned = jnp.clip(weight - s.lr * slope, 0, 1).astype(weight.dtype)
                weight = learned if adaptive == "step" else jnp.where(s.j == 0, learned, weight)
            return (new, g.stats, optimizer, weight), params

        return mixed_step

    def client(params, c):
        own = c.state.own
        v, stats = start(own, params, c, first)
        carry = (v, stats, solve.optimizer.init(v), c.state.alpha)
        y = solve(params, c, carry=carry, on_step=on_step(c.info))
        v, stats, _, weight = y.carry
        message = {"delta": weighted_delta(y, params, c, weighting)}
        return y.update(message, state=APFLRow(trained(v, stats, own), weight))

    return core.algorithm(
        client,
        fedavg_server(server_lr),
        client_init=lambda params, id: APFLRow(untrained(setting, params), jnp.asarray(alpha, float)),
        weighting=weighting,
        client_model=mixture,
    )
