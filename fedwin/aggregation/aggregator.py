"""The Aggregator: how the server combines the clients' steps y_i - x; `aggregated` applies one to an algorithm.

The server gets the stacked messages (Phase.aggregate). The aggregator's result for all steps of the cohort takes the
place of their weighted mean; the other parts of messages are summed as usual.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fedwin import core, tree, window
from fedwin.errors import UserError
from fedwin.registry import Registry


class Aggregator(NamedTuple):
    """How the clients' steps are combined.

    Attributes:
      name: name of the aggregator.
      combine: (steps [C, d], weights [C], present bool [C]) -> [d], where a step is all parameters in one vector; the
        step and weight of an absent client are 0. None: the algorithm's own weighted mean.
    """

    name: str
    combine: Callable | None = None


# Builders have the signature builder(setting, *, option=...) -> Aggregator.
AGGREGATORS = Registry("aggregator", rule="rule", builds=Aggregator)


class StepCheck:
    """Raises UserError when a round is traced, if no message has a mean step, or one has sums computed from it.

    Args:
      label: what is applied to the steps, for the error message, such as 'aggregate=median'.
    """

    def __init__(self, label: str, algorithm: core.Algorithm):
        self.label = label
        self.last = next((phase for phase in reversed(algorithm.phases) if phase.client), None)
        self.found = False

    def __call__(self, phase: core.Phase, message) -> bool:
        """Returns whether the message of a phase of the algorithm contains mean steps."""
        parts = tree.nodes(message, core.MeanStep, core.DerivedFromStep)
        if any(isinstance(x, core.DerivedFromStep) for x in parts):
            raise UserError(
                f"{self.label}: the server of this algorithm also uses a sum that is computed from the clients' steps, "
                f"and --{self.label.partition('=')[0]} changes the steps alone; choose another --algorithm."
            )
        self.found = self.found or bool(parts)
        if phase is self.last and not self.found:
            raise UserError(
                f"{self.label}: clients of this algorithm send no mean step y_i - x that it could change; choose "
                f"another --algorithm."
            )
        return bool(parts)


def _combined(combine: Callable, sent: core.MeanStep, present) -> core.MeanStep:
    """Returns the total of one mean step; `sent` is stacked, [C, ...]."""
    # A weight of 0 removes a client from any mean, and its step is not known.
    present = present & (sent.weight > 0)
    weight = jnp.where(present, sent.weight, 0)
    one = lambda sent, present: tree.where(present, sent.value, tree.zeros_like(sent.total))
    steps = jax.vmap(one)(sent, present)
    packing = window.flat(tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), steps))
    rows = jax.vmap(packing.pack)(steps)
    vector = combine(rows, weight.astype(packing.dtype), present)
    if (found := getattr(vector, "shape", None)) != rows.shape[1:]:
        raise UserError(f"an aggregator's combine returns the shape {found}; return one step, {rows.shape[1:]}.")
    # No client: no step.
    vector = jnp.where(jnp.any(present), vector, 0)
    return core.MeanStep(packing.unpack(vector), jnp.ones((), sent.weight.dtype))


def uniform_mean(values, counted):
    """Returns the mean of some rows; a matrix product, because XLA sums columns slowly on a CPU.

    Args:
      values: [C, d]; rows that are not counted may be inf or NaN.
      counted: the rows that count, bool [C, 1].

    Returns:
      [d]; 0 where none counts.
    """
    values = jnp.where(counted, values, 0)
    total = jnp.matmul(jnp.ones(len(values), values.dtype), values, precision="highest")
    return total / jnp.maximum(jnp.sum(counted, 0)[:1], 1)


def aggregated(algorithm: core.Algorithm, aggregator: Aggregator) -> core.Algorithm:
    """Returns an algorithm, given with all its wrappers, whose server combines the clients' steps with an aggregator.

    Model statistics (BatchNorm's), metrics, and parts of a message other than mean steps (SCAFFOLD's controls, MIME's
    gradients) remain weighted means and sums; a client's metric that is not finite does not count.

    Raises:
      UserError: when the algorithm aggregates stacked messages itself; on tracing a round, when clients send no mean
        step, or something derived from it.
    """
    combine = aggregator.combine
    if combine is None:
        return algorithm
    label = f"aggregate={aggregator.name}"
    if any(phase.aggregate for phase in algorithm.phases):
        raise UserError(f"{label}: the algorithm aggregates messages itself (Phase.aggregate); omit --aggregate.")
    check = StepCheck(label, algorithm)

    def with_aggregator(phase: core.Phase) -> core.Phase:
        def aggregate(messages, present):
            check(phase, messages)
            is_step = lambda x: isinstance(x, core.MeanStep)
            one = lambda x: _combined(combine, x, present) if is_step(x) else jnp.sum(x, 0)
            return jax.tree.map(one, messages, is_leaf=is_step)

        def client(down, c):
            update = phase.client(down, c)
            counted = lambda x: tree.where(jnp.isfinite(sum(map(jnp.sum, jax.tree.leaves(x)))), x, tree.zeros_like(x))
            return update._replace(metrics={name: counted(mean) for name, mean in update.metrics.items()})

        return phase._replace(client=client, aggregate=aggregate)

    return core.with_client_phases(with_aggregator, algorithm)


@AGGREGATORS.register("mean")
def mean(setting: core.Setting) -> Aggregator:
    """Mean: sum_i p_i (y_i - x), the weights p_i as the algorithm defines them; the default.

    Messages are summed and never stacked.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("fedavg", aggregate="mean") == testing.run_rounds("fedavg")
      True
    """
    return Aggregator("mean")
