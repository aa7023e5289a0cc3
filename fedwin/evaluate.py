"""Loss and accuracy of models on a fixed set of examples, inside the compiled loop."""

from typing import Any, Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec

from fedwin import losses, tree
from fedwin.core import Mean, Variables
from fedwin.strategy import AXIS, Strategy


def batches(examples: dict[str, np.ndarray], batch_size: int, multiple: int = 1) -> dict[str, np.ndarray]:
    """Packs examples into [n, B, ...] with a 'mask' [n, B] (0 = padding); n is a multiple of `multiple`."""
    total = len(next(iter(examples.values())))
    batch_size = min(batch_size, -(-total // multiple))
    count = -(-total // (batch_size * multiple)) * multiple
    short = count * batch_size - total

    def pack(values):
        padded = np.concatenate([values, np.zeros((short, *values.shape[1:]), values.dtype)]) if short else values
        return padded.reshape(count, batch_size, *values.shape[1:])

    return {name: pack(values) for name, values in examples.items()} | {"mask": pack(np.ones(total, np.float32))}


def classification(num_domains: int = 0) -> Callable:
    """Returns (logits [B, C], batch) -> {'loss', 'accuracy'} as Means over the real examples.

    With domains, also 'accuracy_domain<i>'; the caller averages them without weights.
    """

    def measure(logits, batch):
        mask = batch["mask"]
        nll = jnp.where(mask > 0, losses.nll(logits, batch["y"]), 0)
        right = (jnp.argmax(logits, -1) == batch["y"]) * mask
        out = {"loss": Mean(jnp.sum(nll), jnp.sum(mask)), "accuracy": Mean(jnp.sum(right), jnp.sum(mask))}
        for domain in range(num_domains):
            inside = mask * (batch["domain"] == domain)
            out[f"accuracy_domain{domain}"] = Mean(jnp.sum(right * inside), jnp.sum(inside))
        return out

    return measure


def sequence(forbidden: tuple[int, ...] = (), ignored: tuple[int, ...] = (0,)) -> Callable:
    """Returns (logits [B, T, V], batch) -> {'loss', 'accuracy'} for token prediction; label 0 is padding.

    loss: mean over rows of the non-padding token losses' sum divided by T. accuracy: over the tokens whose label is not
    in `ignored`, with the logits of `forbidden` ids removed.
    """

    def measure(logits, batch):
        mask, labels = batch["mask"], batch["y"]
        rows = jnp.where(mask > 0, losses.sequence_nll(logits, labels), 0)
        counted = mask[:, None] * jnp.all(jnp.stack([labels != i for i in ignored]), 0)
        allowed = logits.at[..., jnp.array(forbidden, int)].set(-jnp.inf) if forbidden else logits
        right = jnp.sum((jnp.argmax(allowed, -1) == labels) * counted)
        return {"loss": Mean(jnp.sum(rows), jnp.sum(mask)), "accuracy": Mean(right, jnp.sum(counted))}

    return measure


def make_probe(model, normalise: Callable, measure: Callable, strategy: Strategy = Strategy()) -> Callable:
    """Returns (dict name -> Variables, test batches) -> dict name -> {metric: scalar}.

    All models run through one loop body, so that many read-outs cost one compilation; on a mesh every device takes its
    share of the batches.
    """

    def one(variables: Variables, test):
        def sums(batch):
            return measure(model.apply(variables, normalise(batch), None, False).logits, batch)

        shapes = jax.eval_shape(sums, tree.map(lambda x: x[0], test))
        zeros = tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
        return lax.scan(lambda total, batch: (tree.add(total, sums(batch)), None), zeros, test)[0]

    def several(stacked, test):
        return lax.map(lambda variables: one(variables, test), stacked)

    if strategy.mesh is None:
        measured = several
    else:

        def shard(stacked, test):
            return lax.psum(several(stacked, test), AXIS)

        measured = jax.shard_map(
            shard, mesh=strategy.mesh, in_specs=(PartitionSpec(), PartitionSpec(AXIS)), out_specs=PartitionSpec(), check_vma=False
        )

    def probe(models: dict[str, Variables], test) -> dict[str, Any]:
        names = list(models)
        stacked = tree.map(lambda *leaves: jnp.stack(leaves), *models.values())
        sums = measured(stacked, test)
        means = {metric: value.value for metric, value in sums.items()}
        return {name: {metric: value[i] for metric, value in means.items()} for i, name in enumerate(names)}

    return probe
