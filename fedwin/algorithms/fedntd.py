"""FedNTD: clients keep what the server model predicts for the classes other than an example's own.

The received model is run in evaluation mode. The distillation has no factor temperature^2, unlike that of the authors'
code (https://github.com/Lee-Gihun/FedNTD) since its second version; at the default temperature they are equal.
"""

import dataclasses

import jax.numpy as jnp
from jax.nn import logsumexp, one_hot

from fedwin import core, local, losses, tree
from fedwin.algorithms import common
from fedwin.algorithms.registry import ALGORITHMS, facts
from fedwin.registry.ranges import NonNegative, Positive


def not_true_divergence(logits, teacher, labels, temperature=1.0):
    """Computes the divergence [B] from the teacher's prediction over the classes other than an example's own.

        sum_{c != y} q_c (log q_c - log p_c),   p = softmax_{c != y}(f / temperature), q likewise of the teacher

    for logits f and those of the teacher [B, C], and labels y [B].

    Example:
      >>> import numpy as np
      >>> f = np.array([[5.0, 1.0, 1.0]])
      >>> float(not_true_divergence(f, f, np.array([0]))[0])  # two classes are left
      0.0
    """
    other = 1 - one_hot(labels, logits.shape[-1])

    def log_softmax(f):
        f = tree.at_least_float32(f) / temperature
        return f - logsumexp(f, axis=-1, b=other, keepdims=True)

    log_p, log_q = log_softmax(logits), log_softmax(teacher)
    return jnp.sum(jnp.where(other > 0, jnp.exp(log_q) * (log_q - log_p), 0), -1)


@ALGORITHMS.register(
    "fedntd",
    paper="lee2022preservation",
    instances=("fedntd:beta=0.5",),
    degenerate={"beta": 0},
    asynchronous=True,
    **facts(),
)
def fedntd(
    setting: core.Setting,
    solve: local.Solver,
    *,
    beta: NonNegative = 1.0,
    temperature: Positive = 1.0,
    server_lr: Positive = 1.0,
    weighting: common.Weighting = "samples",
) -> core.Algorithm:
    """FedNTD: loss + beta KL(q || p), p and q the client's and the server model's softmax over the not-true classes.

        L = loss + beta sum_{c != y} q_c log(q_c / p_c),   p = softmax_{c != y}(f(y_i) / temperature), q of f(x)
        x <- x + server_lr sum_i p_i (y_i - x)

    Args:
      beta: weight of the distillation.
      temperature: divides the logits in both softmaxes; the paper's tau.

    Raises:
      UserError: for sequences and continuous labels.

    Source: Lee et al., Preservation of the Global Knowledge by Not-True Distillation in Federated Learning, 2022,
    https://arxiv.org/abs/2106.03097.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("fedntd:beta=1", problem=testing.classification())
      {'model': [0.778, 0.503, 0.357]}
    """
    model = setting.model

    def client(params, c):
        losses.check_one_class(c.examples["y"], "fedntd", "choose another --algorithm")

        def term(output, batch):
            teacher = model.apply(core.Variables(params, c.stats), batch, c.key, False).logits
            values = not_true_divergence(output.logits, teacher, batch["y"], temperature)
            return beta * losses.masked_mean(values, batch)

        y = dataclasses.replace(solve, loss=losses.with_term(solve.loss, model, term))(params, c)
        return y.update({"delta": common.weighted_delta(y, params, c, weighting)})

    return core.algorithm(client, common.fedavg_server(server_lr), weighting=weighting)
