"""MOON: a contrastive loss pulls a client's features to the server model's, away from those of its previous model.

h is the input of the last layer. The authors add a projection head to their networks, which here is part of the model,
and take h after it. The received and the previous model are run in evaluation mode, as in their code
(https://github.com/QinbinLi/MOON). At its first participation a client has no previous model and trains as in FedAvg;
the code does so in the first round, and later uses the networks that it initialized for the clients instead.
"""

import dataclasses

import jax.numpy as jnp

from fedwin import core, local, losses
from fedwin.algorithms import common, personal
from fedwin.algorithms.registry import ALGORITHMS, facts
from fedwin.registry.ranges import NonNegative, Positive


def cosine(a, b):
    """Computes the cosine similarity of vectors [..., d], 0 where one of them is 0."""
    norm = lambda v: jnp.sqrt(jnp.maximum(jnp.sum(v**2, -1), 1e-16))
    return jnp.sum(a * b, -1) / (norm(a) * norm(b))


def contrast(h, server, previous, temperature):
    """Computes the contrastive loss [B] of features [B, d]: the client's, the server model's, the previous model's.

    -log(exp(cos(h, h_x) / temperature) / (exp(cos(h, h_x) / temperature) + exp(cos(h, h_v) / temperature)))
    """
    similarities = jnp.stack([cosine(h, server), cosine(h, previous)], -1)
    return losses.nll(similarities / temperature, jnp.zeros(len(h), jnp.int32))


@ALGORITHMS.register("moon", paper="li2021model", instances=("moon:mu=0.5",), degenerate={"mu": 0}, **facts(client="1"))
def moon(
    setting: core.Setting,
    solve: local.Solver,
    *,
    mu: NonNegative = 1.0,
    temperature: Positive = 0.5,
    server_lr: Positive = 1.0,
    weighting: common.Weighting = "samples",
) -> core.Algorithm:
    """MOON: loss + mu contrastive loss, features near the server model's and far from the client's previous model's.

        L = loss - mu log(exp(cos(h, h_x) / temperature) / sum_{k in x, v_i} exp(cos(h, h_k) / temperature))
        v_i <- y_i,   x <- x + server_lr sum_i p_i (y_i - x)

    Args:
      mu: weight of the contrastive loss.
      temperature: divides the similarities in its softmax.

    Raises:
      UserError: when the features are unknown.

    Source: Li et al., Model-Contrastive Federated Learning, 2021, https://arxiv.org/abs/2103.16257.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("moon:mu=1", problem=testing.classification())
      {'model': [0.777, 0.506, 0.358]}
    """
    model = setting.model

    def client(params, c):
        own = personal.start(c.state, params, c, "received")

        def term(output, batch):
            of = lambda variables: losses.features_of(model.apply(variables, batch, c.key, False), "moon")
            server, previous = of(core.Variables(params, c.stats)), of(own)
            values = contrast(losses.features_of(output, "moon"), server, previous, temperature)
            return jnp.where(c.state.seen, mu, 0.0) * losses.masked_mean(values, batch)

        y = dataclasses.replace(solve, loss=losses.with_term(solve.loss, model, term))(params, c)
        message = {"delta": common.weighted_delta(y, params, c, weighting)}
        return y.update(message, state=personal.trained(y.params, y.stats, c.state))

    return core.algorithm(
        client,
        common.fedavg_server(server_lr),
        client_init=lambda params, id: personal.initial(setting, params),
        weighting=weighting,
    )
