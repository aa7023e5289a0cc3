"""Agnostic federated averaging minimizes the worst mixture of domains, with weights that grow with a domain's loss.

F_d is the mean loss of the cohort's examples of domain d, 0 for a domain without any. n_d, which is 1 before the first
round, turns the sum over a domain's clients into its mean. Client.importance multiplies N_i in both, as in b_i. With
one domain per client, n_d = N_i is known and b_i = lambda_i. With weighting=samples, the prior over domains is their
share of the examples instead of a uniform one: b_i = lambda_d N_i, which is FedAvg at lr = 0. F_i costs one forward
pass over the client's examples per round.

FedJAX (fedjax.algorithms.agnostic_fed_avg) is weighting=uniform with batch_loss=sum: it divides the summed loss of a
mini-batch by all N_i, so a local step is B / N_i times as long as with batch_loss=mean. It divides by zero if no client
of the last `window` rounds belongs to some domain; here n_d keeps its last value.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from fedwin import core, local, rules, tree
from fedwin.algorithms import common
from fedwin.algorithms.registry import ALGORITHMS, facts
from fedwin.errors import UserError
from fedwin.registry.ranges import NonNegative, Positive, PositiveInt


class AgnosticState(NamedTuple):
    """State of the server.

    Attributes:
      weights: lambda, which sum to 1, float [K]. Domains are numbered below K; numbers without clients change nothing.
      window: the cohorts' examples by domain in the last rounds, float [W, K]; None where n_d is not needed.
      examples: n_d, float [K]; None where it is not needed.
    """

    weights: jax.Array
    window: jax.Array | None
    examples: jax.Array | None


def domain_weights(weights, losses, lr):
    """Computes the step of the weights lambda [K] by the losses F [K] of domains; each stays at least 1e-30."""
    # A common factor cancels; without it, exp overflows.
    grown = weights * jnp.exp(lr * (losses - jnp.max(losses)))
    # Not 0, or a cohort of such domains alone would have no mean.
    return jnp.maximum(grown / jnp.sum(grown), 1e-30)


def summed(solve: local.Solver, c: core.Client) -> local.Rule:
    """Returns the rule of FedJAX's client: the gradient of a batch's summed loss, divided by N_i."""

    def rule(grad, s):
        output = rules.sgd(grad, s)
        share = solve.batches.count(s.batch).astype(s.lr.dtype) / jnp.maximum(c.size, 1)
        return output._replace(direction=tree.scale(share, output.direction))

    return rule


@ALGORITHMS.register(
    "agnostic",
    paper=("ro2021communication", "mohri2019agnostic"),
    instances=("agnostic", "agnostic:weighting=uniform,batch_loss=sum"),
    degenerate={"lr": 0},
    **facts(up="1 + 1 number", server="1 + weights of domains", status="paper"),
)
def agnostic(
    setting: core.Setting,
    solve: local.Solver,
    *,
    lr: NonNegative = 0.1,
    domains: Literal["client", "info"] = "client",
    window: PositiveInt = 1,
    batch_loss: Literal["mean", "sum"] = "mean",
    server_lr: Positive = 1.0,
    weighting: common.Weighting = "samples",
) -> core.Algorithm:
    """Agnostic FedAvg: steps weighted by lambda_d of the client's domain, lambda_d <- lambda_d exp(lr F_d), normalized.

        x <- x + server_lr sum_i b_i (y_i - x) / sum_i b_i,   b_i = lambda_d N_i / n_d
        lambda_d <- lambda_d exp(lr F_d) / sum_e lambda_e exp(lr F_e),   d: the client's domain
        n_d <- mean over the last `window` rounds of the cohort's examples of domain d

    Args:
      lr: learning rate of the domains' weights; 0 keeps them equal.
      domains: 'client', every client is a domain, or 'info', the domains of the partition (--partition=domain).
      window: rounds over which a domain's examples per cohort are averaged ('info' with 'uniform').
      batch_loss: local steps on the 'mean' loss of a mini-batch, or on its 'sum' divided by N_i, as in FedJAX.
      weighting: prior of the domains, their share of the examples ('samples') or equal ('uniform', as in FedJAX).

    Raises:
      UserError: when clients have no domains.

    Source: Ro et al., Communication-Efficient Agnostic Federated Averaging, 2021, https://arxiv.org/abs/2104.02748.
    Mohri et al., Agnostic Federated Learning, 2019, https://arxiv.org/abs/1902.00146.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("agnostic:lr=0.5")
      {'model': [3.916, 3.445, 3.891]}
    """
    counts = domains == "info" and weighting == "uniform"

    def weight(c, domain, state):
        if not counts:
            return core.aggregation_weight(c, weighting) * state.weights[domain]
        return core.aggregation_weight(c, "samples") * state.weights[domain] / state.examples[domain]

    def client(down, c):
        params, state = down
        if domains != "client" and not (isinstance(c.info, dict) and "domain" in c.info):
            raise UserError(
                "agnostic: domains=info needs clients that belong to domains (--partition=domain); or omit it."
            )
        domain = c.id if domains == "client" else c.info["domain"]
        loss = solve.mean_loss(params, c)
        y = solve(params, c, local.sgd if batch_loss == "mean" else summed(solve, c))
        of_domain = jnp.zeros(setting.num_clients).at[domain]
        examples = core.aggregation_weight(c, "samples").astype(float)
        message = {
            "delta": core.mean_step(tree.sub(y.params, params), weight(c, domain, state)),
            "loss": of_domain.set(examples * loss),
            "examples": of_domain.set(examples),
        }
        return y.update(message)

    def server(params, state, total, round):
        seen = total["examples"]
        losses = jnp.where(seen > 0, total["loss"] / jnp.where(seen > 0, seen, 1), 0)
        state = state._replace(weights=domain_weights(state.weights, losses, lr))
        if counts:
            last = jnp.concatenate([state.window[1:], seen[None]])
            mean = jnp.mean(last, 0)
            state = state._replace(window=last, examples=jnp.where(mean > 0, mean, state.examples))
        return common.add_mean_step(params, total, server_lr), state

    def init(params):
        ones = jnp.ones(setting.num_clients)
        window_and_examples = (jnp.tile(ones, (window, 1)), ones) if counts else (None, None)
        return AgnosticState(ones / setting.num_clients, *window_and_examples)

    return core.algorithm(
        client,
        server,
        broadcast=lambda params, state: (params, state),
        init=init,
        weighting=weighting,
        # A client sends its step and one number, its loss; the server knows N_i and applies the weights.
        wire=lambda down, message: (down[0], (message["delta"], message["delta"].weight)),
    )
