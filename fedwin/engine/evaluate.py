"""Evaluation inside the compiled loop: loss and accuracy on test examples, and on those that clients hold out."""

import warnings
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec

from fedwin import losses, tree
from fedwin.core import Mean, Variables
from fedwin.data.dataset import Dataset
from fedwin.data.example_source import ExampleSource, Images
from fedwin.data.federation import Federation
from fedwin.data.integrity import check_arrays
from fedwin.engine.strategy import AXIS, Strategy
from fedwin.errors import UserError
from fedwin.residence.examples import example_bytes

# Test examples are on the device for the whole run; more than this many bytes of them are rejected.
TEST_BYTES = 4 << 30
# Prefix of the names of metrics on held-out examples.
VALIDATION_PREFIX = "val_"
# On a CPU a batch goes through the network in equal blocks of this many examples: activations stay in the cache.
MAX_BLOCK, MIN_BLOCK = 50, 25


class RootMean(Mean):
    """The square root of a mean, before the division."""

    __slots__ = ()

    @property
    def value(self):
        """The root of total / weight."""
        return super().value ** 0.5


class Determination(NamedTuple):
    """The coefficient of determination before the division: sums, so that batches and devices add up exactly.

        R^2 = 1 - sum (y - f)^2 / (sum (y - c)^2 - (sum (y - c))^2 / n)

    Attributes:
      residual: sum (y - f)^2.
      total: sum (y - c), where c is any number near the mean of the labels, against cancellation.
      square: sum (y - c)^2.
      weight: n.
    """

    residual: jax.Array
    total: jax.Array
    square: jax.Array
    weight: jax.Array

    @property
    def value(self):
        """R^2; NaN or -inf if all labels are equal."""
        return 1 - self.residual / (self.square - self.total**2 / self.weight)


class MeanOfMeans(NamedTuple):
    """An unweighted mean of groups' means before the division: sums [..., G] that carry their weights.

    value = (1/G) sum_g total_g / weight_g, over the groups that have any weight
    """

    total: jax.Array
    weight: jax.Array

    @property
    def value(self):
        """The mean of means [...]."""
        present = self.weight > 0
        means = jnp.where(present, self.total / jnp.where(present, self.weight, 1), 0)
        return jnp.sum(means, -1) / jnp.sum(present, -1)


def held_out(dataset: Dataset, count: int = 0) -> dict[str, np.ndarray]:
    """Returns the test features that evaluation needs, name -> [N, ...].

    A sample is one fixed draw, so that all runs on a data set are tested on the same examples. Images that are decoded
    on access are decoded on all cores; the checksums of memory maps are verified where these are read as a whole.

    Args:
      count: size of the sample; 0: all, or a warning and as many as fit.

    Raises:
      UserError: more bytes than TEST_BYTES were asked for, or a file of the cache is damaged.
    """
    names = ("x", "y", "domain") if dataset.domain_names else ("x", "y")
    features = {name: dataset.test[name] for name in names if name in dataset.test}
    total = len(features["y"])
    drawn = _fitting(dataset.name, example_bytes(features), total, count)
    if drawn < total:
        rows = np.sort(np.random.Generator(np.random.PCG64(0)).choice(total, drawn, replace=False))
    else:
        check_arrays(features)
        if not any(isinstance(values, Images) for values in features.values()):
            return features
        rows = np.arange(total)
    with ExampleSource(features) as source:
        return source.gather(rows)


def _fitting(name: str, size: int, total: int, count: int) -> int:
    """Returns the number of examples of `size` bytes to draw: `count` (0: all), or, with a warning, what fits."""
    drawn = min(count or total, total)
    if drawn * size <= TEST_BYTES:
        return drawn
    fits = max(TEST_BYTES // 2 // size, 1)  # half: packing and placing them makes copies
    excess = (
        f"dataset {name}: {drawn:,} test examples of {size:,} bytes are more than the {TEST_BYTES >> 30} GiB "
        f"kept for evaluation"
    )
    if count:
        raise UserError(f"{excess}; evaluate on a fixed sample of them with --eval_examples={fits}.")
    warnings.warn(f"{excess}; evaluating on a fixed sample of {fits:,} (--eval_examples={fits}).", stacklevel=3)
    return fits


def test_bytes(dataset: Dataset, count: int, batch_size: int, multiple: int) -> int:
    """Returns the bytes of the batches that `held_out` and `batches` make of a data set's test examples."""
    features = {name: values for name, values in dataset.test.items() if name in ("x", "y", "domain")}
    size, total = example_bytes(features) + 4, len(features["y"])
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
      room: number of examples to make room for, if there are fewer.
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


def measure_of(
    dataset: Dataset, *, of: Literal["test", "held out", "client"] = "test", by_class: bool = False
) -> Callable:
    """Returns the measure of a data set, (logits, batch) -> metric -> Mean, by its task.

    Args:
      of: the examples; only those of the test split have accuracies by domain, and a client's no R^2, which a few
        examples do not define.
      by_class: whether there are accuracies by class, of classes in the order of their size.
    """
    if dataset.task == "sequence":
        return sequence(dataset.accuracies)
    if dataset.task == "regression":
        return regression(None if of == "client" else float(np.mean(dataset.train["y"], dtype=np.float64)))
    domains = dataset.domain_names if of == "test" and "domain" in dataset.test else ()
    return classification(domains, dataset.num_classes if by_class else 0)


def regression(center: float | None) -> Callable:
    """Returns (outputs [B, 1], batch) -> {'loss', 'rmse', 'r2'}: mean squared error, its root, and R^2.

    Args:
      center: a number near the mean of the labels, see `Determination`; None: no R^2.
    """

    def measure(outputs, batch):
        real = batch["mask"] > 0
        error = jnp.where(real, losses.residuals(outputs, batch, "of the evaluation"), 0)
        squares, count = jnp.sum(error**2), jnp.sum(batch["mask"])
        out = {"loss": Mean(squares, count), "rmse": RootMean(squares, count)}
        if center is not None:
            apart = jnp.where(real, batch["y"] - center, 0)
            out["r2"] = Determination(squares, jnp.sum(apart), jnp.sum(apart**2), count)
        return out

    return measure


def classification(domains: tuple[str, ...] = (), classes: int = 0) -> Callable:
    """Returns (logits [B, C], batch) -> {'loss', 'accuracy'} as Means over the real examples.

    Args:
      domains: names; 'accuracy' is then the unweighted mean of the domains' accuracies, and 'accuracy_<domain>' each
        of them.
      classes: number of classes of a long tail, the largest first: adds 'accuracy_class<c>' of each, and their
        unweighted means over thirds, 'accuracy_head', 'accuracy_middle' and 'accuracy_tail'.
    """
    thirds = zip(("head", "middle", "tail"), np.array_split(np.arange(classes), 3), strict=True)
    groups = {name: some for name, some in thirds if len(some)}

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
        if classes:
            inside = mask[:, None] * (batch["y"][:, None] == jnp.arange(classes))
            total, weight = right @ inside, jnp.sum(inside, 0)
            out |= {f"accuracy_{name}": MeanOfMeans(total[some], weight[some]) for name, some in groups.items()}
            out |= {f"accuracy_class{c}": Mean(total[c], weight[c]) for c in range(classes)}
        return out

    return measure


def sequence(accuracies: Mapping[str, tuple]) -> Callable:
    """Returns (logits [B, T, V] or [B, V], batch) -> {'loss', accuracies} for token prediction; label 0 is padding.

    The loss is the mean over rows of the sum of the non-padding tokens' losses divided by T. Logits without a time axis
    have one target per row (`losses.last_target`).

    Args:
      accuracies: name -> (ids of labels that are not counted, ids whose logits are removed).
    """

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


def make_probe(model, normalize: Callable, measure: Callable, strategy: Strategy = Strategy()) -> Callable:
    """Returns (dict name -> Variables, test batches) -> dict name -> {metric: scalar}.

    All models run through one loop body, so that many read-outs cost one compilation; on a mesh every device evaluates
    its share of the batches.

    Args:
      normalize: batch -> batch, applied before the network.
      measure: (logits, batch) -> metric -> Mean, as from `measure_of`.
    """

    def sums(variables: Variables, batch):
        logits = lambda batch: model.apply(variables, normalize(batch), None, False).logits
        return measure(in_blocks(logits)(batch), batch)

    # For shapes and loops of several programs: jit traces it once, and inline leaves no trace of the jit.
    sums = jax.jit(sums, inline=True)

    def one(variables: Variables, test):
        zeros = tree.zeros_like(jax.eval_shape(sums, variables, tree.map(lambda x: x[0], test)))
        return lax.scan(lambda total, batch: (tree.add(total, sums(variables, batch)), None), zeros, test)[0]

    def several(stacked, test):
        return lax.map(lambda variables: one(variables, test), stacked)

    measured = several
    if strategy.mesh is not None:
        measured = jax.shard_map(
            lambda stacked, test: lax.psum(several(stacked, test), AXIS),
            mesh=strategy.mesh,
            in_specs=(PartitionSpec(), PartitionSpec(AXIS)),
            out_specs=PartitionSpec(),
            check_vma=False,
        )

    def probe(models: dict[str, Variables], test) -> dict[str, dict[str, jax.Array]]:
        names = list(models)
        sums = measured(tree.map(lambda *leaves: jnp.stack(leaves), *models.values()), test)
        means = {metric: value.value for metric, value in sums.items()}
        return {name: {metric: value[i] for metric, value in means.items()} for i, name in enumerate(names)}

    return probe


def make_attack_probe(model, normalize: Callable, trigger, strategy: Strategy) -> Callable:
    """Returns a probe of 'attack_success', that of a backdoor on the test examples.

    It is the share of the examples of other classes that the model takes for the target when they have the pattern,
    both of an aggregation.backdoor.Trigger.
    """

    def measure(logits, batch):
        others = batch["mask"] * (batch["y"] != trigger.target)
        return {"attack_success": Mean(jnp.sum((jnp.argmax(logits, -1) == trigger.target) * others), jnp.sum(others))}

    return make_probe(model, lambda batch: normalize(batch | {"x": trigger.stamp(batch["x"])}), measure, strategy)


def joined(tested: Sequence[Callable], validated: Callable | None = None) -> Callable:
    """Returns a probe with the metrics of several.

    Args:
      validated: probe of held-out examples, 'val_...'; the examples are then (test batches, held-out batches).
    """

    def probe(models: dict[str, Variables], examples) -> dict[str, dict[str, jax.Array]]:
        test, pool = (examples, None) if validated is None else examples
        found = [each(models, test) for each in tested]
        if validated is not None:
            more = validated(models, pool)
            found.append({name: {VALIDATION_PREFIX + metric: v for metric, v in more[name].items()} for name in models})
        return {name: dict(ChainMap(*(each[name] for each in found))) for name in models}

    return probe


def in_blocks(logits: Callable) -> Callable:
    """Returns `logits`, batch -> [B, ...], computed block by block on a CPU where blocks divide the batch."""
    # Not lax.platform_dependent, which would trace the network once for every platform.
    if jax.default_backend() != "cpu":
        return logits

    def blockwise(batch):
        total = len(batch["mask"])
        each = next((n for n in range(MAX_BLOCK, MIN_BLOCK - 1, -1) if total % n == 0), total)
        if each == total:
            return logits(batch)
        blocks = jax.tree.map(lambda values: values.reshape(total // each, each, *values.shape[1:]), batch)
        outputs = lax.map(logits, blocks)
        return outputs.reshape(total, *outputs.shape[2:])

    return blockwise


def _count(federation: Federation) -> int:
    return 0 if federation.validation is None else len(federation.validation.order)


def check_validation(federation: Federation, seed: int) -> None:
    """Checks that clients hold out examples, and not more than TEST_BYTES.

    Raises:
      UserError: there are none, or too many.
    """
    if not _count(federation):
        raise UserError(
            f"eval_val: no client holds out an example with seed {seed}; raise --val_fraction or use fewer clients."
        )
    if validation_bytes({seed: federation}) > TEST_BYTES:
        raise UserError(
            f"eval_val: {_count(federation):,} held-out examples with seed {seed} are more than the "
            f"{TEST_BYTES >> 30} GiB reserved for evaluation; lower --val_fraction."
        )


def validation_bytes(federations: dict[int, Federation]) -> int:
    """Returns the bytes of the held-out examples of the seed that has the most."""
    return max(_count(federation) * example_bytes(federation.features) for federation in federations.values())


def validation_batches(
    federations: dict[int, Federation], seed: int, batch_size: int, multiple: int = 1
) -> dict[str, np.ndarray]:
    """Returns the held-out examples of all clients in batches [n, B, ...], of one shape for all seeds."""
    federation = federations[seed]
    assert federation.validation is not None
    with ExampleSource(federation.features) as source:
        examples = source.gather(np.sort(federation.validation.order))
    return batches(examples, batch_size, multiple, room=max(map(_count, federations.values())))
