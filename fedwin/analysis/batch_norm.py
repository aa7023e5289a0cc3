"""BatchNorm statistics of averaged models, recomputed from data."""

import functools

import jax
import jax.numpy as jnp

from fedwin import tree
from fedwin.core import Variables
from fedwin.errors import UserError


def recomputed(model, variables: Variables, batches) -> Variables:
    """Returns a model whose BatchNorm statistics are recomputed from data.

        statistics = sum_j n_j batch_j / sum_j n_j,   n_j examples in batch j

    Averages of models, and points on lines and planes between them, have averaged statistics; the recomputed ones are
    their own. A training step changes running' = m running + (1 - m) batch for any m; m is obtained as its derivative.

    Args:
      variables: its parameters, and statistics of which only the shapes matter.
      batches: normalized batches as model.apply takes them, with 'mask' [B] (0 = padding) if they have one.

    Raises:
      UserError: when no batch has an example, or statistics are other than running means (haiku's counters).

    Source: Izmailov et al., Averaging Weights Leads to Wider Optima and Better Generalization, 2018,
    https://arxiv.org/abs/1803.05407.
    """
    if tree.is_empty(variables.stats):
        return variables
    refusal = UserError(f"recomputed: {model.name} has statistics other than running means, such as haiku's counters.")
    if not all(jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in jax.tree.leaves(variables.stats)):
        raise refusal
    total, count = tree.zeros_like(variables.stats), 0.0
    for batch in batches:
        examples = float(batch["mask"].sum()) if "mask" in batch else float(len(batch["x"]))
        # A batch of padding alone leaves the statistics as they are, m = 1.
        if examples:
            statistics, m = _batch_statistics(model, variables, batch)
            if any((leaf == 1).any() for leaf in jax.tree.leaves(m)):
                raise refusal
            total, count = tree.add(total, tree.scale(examples, statistics)), count + examples
    if not count:
        raise UserError("recomputed: no batch has an example; pass batches of training data.")
    return variables._replace(stats=tree.scale(1 / count, total))


# Jitted once for all points of a landscape.
@functools.partial(jax.jit, static_argnums=0)
def _batch_statistics(model, variables, batch):
    step = lambda running: model.apply(Variables(variables.params, running), batch, jax.random.key(0), True).stats
    fill = lambda value: tree.map(lambda s: jnp.full_like(s, value), variables.stats)
    moved, m = jax.jvp(step, (fill(0),), (fill(1),))
    return tree.map(lambda new, m: new / (1 - m), moved, m), m
