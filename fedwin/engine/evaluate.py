"""Loss and accuracy of models on a fixed set of examples, inside the compiled loop."""

import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec

from fedwin import losses, tree
from fedwin.core import Mean, Variables
from fedwin.data.dataset import Dataset
from fedwin.data.integrity import check_arrays
from fedwin.data.reader import ExampleSource, Images
from fedwin.engine.blockwise import in_blocks
from fedwin.engine.strategy import AXIS, Strategy
from fedwin.errors import UserError

# Test examples are kept on the device for the whole run; more than this many bytes of them are refused.
TEST_BYTES = 4 << 30


class MeanOfMeans(NamedTuple):
    """An unweighted mean of groups' means before the division: sums [..., G] that carry their weights.

        value = (1/G) sum_g total_g / weight_g, over the groups that have any weight

    Attributes:
      total: sums over the examples of each group [..., G].
      weight: their numbers [..., G].
    """

    total: Any
    weight: Any

    @property
    def value(self):
        """The mean of means [...]."""
        present = self.weight > 0
        means = jnp.where(present, self.total / jnp.where(present, self.weight, 1), 0)
        return jnp.sum(means, -1) / jnp.sum(present, -1)


def held_out(dataset: Dataset, count: int = 0) -> dict[str, Any]:
    """Returns the test features that evaluation needs.

    Which examples is one fixed draw, so that all runs on a data set are tested on the same. Images that are decoded on
    access are decoded on all cores; memory maps that are read whole are compared with their checksums.

    Args:
      dataset: whose test examples.
      count: how many of them; 0: all, or a warning and as many as fit.

    Raises:
      UserError: more bytes than TEST_BYTES were asked for, or a file of the cache is damaged.
    """
    names = ("x", "y", "domain") if dataset.domain_names else ("x", "y")
    features = {name: dataset.test[name] for name in names if name in dataset.test}
    total = len(features["y"])
    drawn = _fitting(dataset.name, features, total, count)
    if drawn < total:
        rows = np.sort(np.random.Generator(np.random.PCG64(0)).choice(total, drawn, replace=False))
    else:
        check_arrays(features)
        if not any(isinstance(values, Images) for values in features.values()):
            return features
        rows = np.arange(total)
    with ExampleSource(features) as source:
        return source.gather(rows)


def _fitting(name: str, features: dict[str, Any], total: int, count: int) -> int:
    """Returns how many of the test examples are drawn: `count` (0: all), or, with a warning, what fits."""
    drawn = min(count or total, total)
    size = sum(int(np.prod(v.shape[1:], dtype=np.int64)) * v.dtype.itemsize for v in features.values())
    if drawn * size <= TEST_BYTES:
        return drawn
    fits = max(TEST_BYTES // 2 // size, 1)  # half: packing and placing them makes copies
    much = (
        f"dataset {name}: {drawn:,} test examples of {size:,} bytes are more than the {TEST_BYTES >> 30} GiB "
        f"kept for evaluation"
    )
    if count:
        raise UserError(f"{much}; evaluate on a fixed sample of them with --eval_examples={fits}.")
    warnings.warn(f"{much}; evaluating on a fixed sample of {fits:,} (--eval_examples={fits}).", stacklevel=3)
    return fits


def test_bytes(dataset: Dataset, count: int, batch_size: int, multiple: int = 1) -> int:
    """Returns the bytes of the batches that `held_out` and `batches` make of a data set's test examples."""
    features = {name: values for name, values in dataset.test.items() if name in ("x", "y", "domain")}
    size = sum(int(np.prod(v.shape[1:], dtype=np.int64)) * v.dtype.itemsize for v in features.values()) + 4
    total = len(features["y"])
    number, length = _grid(min(count or total, total, max(TEST_BYTES // size, 1)), batch_size, multiple)
    return number * length * size


def _grid(total: int, batch_size: int, multiple: int) -> tuple[int, int]:
    """Returns the number of batches and their size."""
    batch_size = min(batch_size, -(-total // multiple))
    return -(-total // (batch_size * multiple)) * multiple, batch_size


def batches(
    examples: dict[str, np.ndarray], batch_size: int, multiple: int = 1, room: int = 0
) -> dict[str, np.ndarray]:
    """Packs examples into batches [n, B, ...] with a 'mask' [n, B], 0 = padding.

    Args:
      examples: feature -> [N, ...].
      batch_size: B at most.
      multiple: n becomes a multiple of it.
      room: examples that there is room for, where there are fewer.
    """
    total = len(next(iter(examples.values())))
    count, batch_size = _grid(max(total, room), batch_size, multiple)

    def pack(values):
        padded = values
        if len(values) < count * batch_size:
            padded = np.zeros((count * batch_size, *values.shape[1:]), values.dtype)
            padded[:total] = values
        return padded.reshape(count, batch_size, *values.shape[1:])

    return {name: pack(values) for name, values in examples.items()} | {"mask": pack(np.ones(total, np.float32))}


def measure_of(dataset: Dataset) -> Callable:
    """Returns what is measured on a data set: loss and accuracies, those over domains where its test set has any."""
    if dataset.task == "sequence":
        return sequence(dataset.accuracies)
    return classification(dataset.domain_names if "domain" in dataset.test else ())


def classification(domains: tuple[str, ...] = ()) -> Callable:
    """Returns (logits [B, C], batch) -> {'loss', 'accuracy'} as Means over the real examples.

    Args:
      domains: names; 'accuracy' is then the unweighted mean of the domains' accuracies, and 'accuracy_<domain>' each
        of them.
    """

    def measure(logits, batch):
        mask = batch["mask"]
        nll = jnp.where(mask > 0, losses.nll(logits, batch["y"]), 0)
        right = (jnp.argmax(logits, -1) == batch["y"]) * mask
        out = {"loss": Mean(jnp.sum(nll), jnp.sum(mask)), "accuracy": Mean(jnp.sum(right), jnp.sum(mask))}
        if domains:
            inside = mask[:, None] * (batch["domain"][:, None] == jnp.arange(len(domains)))
            total, weight = right @ inside, jnp.sum(inside, 0)
            out["accuracy"] = MeanOfMeans(total, weight)
            out |= {f"accuracy_{name}": Mean(total[i], weight[i]) for i, name in enumerate(domains)}
        return out

    return measure


def sequence(accuracies: Mapping[str, tuple] | None = None) -> Callable:
    """Returns (logits [B, T, V] or [B, V], batch) -> {'loss', accuracies} for token prediction; label 0 is padding.

    loss: mean over rows of the non-padding token losses' sum divided by T. Logits without a time axis have one target a
    row (`losses.last_target`).

    Args:
      accuracies: name -> (ids of labels that are not counted, ids whose logits are removed); by default 'accuracy' over
        all but padding.
    """
    accuracies = accuracies or {"accuracy": ((0,), ())}

    def measure(logits, batch):
        logits, labels = losses.aligned(logits, batch["y"])
        mask = batch["mask"]
        rows = jnp.where(mask > 0, losses.sequence_nll(logits, labels), 0)
        out = {"loss": Mean(jnp.sum(rows), jnp.sum(mask))}
        for name, (ignored, forbidden) in accuracies.items():
            counted = mask[:, None] * ~jnp.isin(labels, jnp.array(ignored, labels.dtype))
            allowed = logits.at[..., jnp.array(forbidden, int)].set(-jnp.inf) if forbidden else logits
            right = jnp.sum((jnp.argmax(allowed, -1) == labels) * counted)
            out[name] = Mean(right, jnp.sum(counted))
        return out

    return measure


def make_probe(model, normalise: Callable, measure: Callable, strategy: Strategy = Strategy()) -> Callable:
    """Returns (dict name -> Variables, test batches) -> dict name -> {metric: scalar}.

    All models run through one loop body, so that many read-outs cost one compilation; on a mesh every device takes its
    share of the batches.

    Args:
      model: the network.
      normalise: batch -> batch, before the network sees it.
      measure: (logits, batch) -> metric -> Mean, as from `measure_of`.
      strategy: whose devices are used.
    """

    def one(variables: Variables, test):
        def logits(batch):
            return model.apply(variables, normalise(batch), None, False).logits

        def sums(batch):
            return measure(in_blocks(logits)(batch), batch)

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
            shard,
            mesh=strategy.mesh,
            in_specs=(PartitionSpec(), PartitionSpec(AXIS)),
            out_specs=PartitionSpec(),
            check_vma=False,
        )

    def probe(models: dict[str, Variables], test) -> dict[str, Any]:
        names = list(models)
        stacked = tree.map(lambda *leaves: jnp.stack(leaves), *models.values())
        sums = measured(stacked, test)
        means = {metric: value.value for metric, value in sums.items()}
        return {name: {metric: value[i] for metric, value in means.items()} for i, name in enumerate(names)}

    return probe
