"""APFL: every client mixes a local model with the server's, and may learn the mixing weight.

The personal model is alpha_i v_i + (1 - alpha_i) x with the evaluated server model x; v_i and alpha_i stay with the
client. g(y) and g(u) are gradients on the same mini-batch.

Public implementations differ. The authors' FedTorch mixes the outputs of two networks instead of their parameters,
takes v's gradient after y's step, updates alpha_i after both with alpha_i grad_v + (1 - alpha_i) grad_y in place of
g(u), and adds 0.02 alpha_i to the slope. FedJAX omits the factor alpha_i in the step of v, learns one alpha per
parameter array, in every step and by the client optimizer, and starts v_i at the received model.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from fedwin import core, local, tree
from fedwin.algorithms import common, personal
from fedwin.algorithms.registry import ALGORITHMS, facts
from fedwin.registry.ranges import Positive, Share


class APFLRow(NamedTuple):
    """State of one of APFL's clients.

    Attributes:
      own: v_i, and the statistics of the mixture.
      alpha: its weight in the mixture, float [].
    """

    own: personal.PersonalModel
    alpha: jax.Array


def mixture(model: core.Variables, row: APFLRow) -> core.Variables:
    """Returns alpha_i v_i + (1 - alpha_i) x, or x for a client that has not taken part, given the evaluated model x."""
    v = personal.read(model, row.own)
    return v._replace(params=tree.lerp(row.alpha, model.params, v.params))


@ALGORITHMS.register(
    "apfl",
    paper="deng2020adaptive",
    instances=("apfl:adaptive=round", "apfl:alpha=0.25,first=received"),
    **facts(client="1 + mixing weight"),
)
def apfl(
    setting: core.Setting,
    solve: local.Solver,
    *,
    alpha: Share = 0.5,
    adaptive: Literal["none", "round", "step"] = "none",
    first: personal.First = "initial",
    server_lr: Positive = 1.0,
    weighting: common.Weighting = "samples",
) -> core.Algorithm:
    """APFL: FedAvg, and a local model v_i trained through the mixture u = alpha v_i + (1 - alpha) y.

        v_i <- v_i - lr alpha g(u),   u = alpha v_i + (1 - alpha) y;   alpha <- alpha - lr <v_i - y, g(u)>
        x   <- x + server_lr sum_i p_i (y_i - x)

    A client does twice the work of FedAvg's. `fedwin train --eval_clients` evaluates the mixtures with x; a client that
    has not taken part has the server model.

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

    def client(params, c):
        def mixed_step(carry, y, s: local.Step, last):
            v, stats, optimizer, weight = carry
            g = solve.gradient_at(stats, s.batch, s.key, c.info)(tree.lerp(weight, s.params, v))
            new, optimizer = solve.apply_step(s._replace(params=v), tree.scale(weight, g.value), None, optimizer)
            if adaptive != "none":
                slope = sum(map(jnp.vdot, jax.tree.leaves(tree.sub(v, s.params)), jax.tree.leaves(g.value)))
                learned = jnp.clip(weight - s.lr * slope, 0, 1).astype(weight.dtype)
                weight = learned if adaptive == "step" else jnp.where(s.j == 0, learned, weight)
            return (new, g.stats, optimizer, weight), y

        own = c.state.own
        v, stats = personal.start(own, params, c, first)
        carry = (v, stats, solve.optimizer.init(v), c.state.alpha)
        y = solve(params, c, carry=carry, on_step=mixed_step)
        v, stats, _, weight = y.carry
        message = {"delta": common.weighted_delta(y, params, c, weighting)}
        return y.update(message, state=APFLRow(personal.trained(v, stats, own), weight))

    return core.algorithm(
        client,
        common.fedavg_server(server_lr),
        client_init=lambda params, id: APFLRow(personal.initial(setting, params), jnp.asarray(alpha, float)),
        weighting=weighting,
        client_model=mixture,
    )
