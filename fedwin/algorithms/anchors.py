"""FedFA's anchors, one per class in the space of features, and what they do in local training.

    loss       (1/C) sum_{c in batch} mean_{y_i = c} ||h_i - A[c]||^2
    anchors    A[c] <- beta A[c] + (1 - beta) (1/batches) sum_batches mean_{y_i = c} h_i, after each local epoch

h is the input of the last layer. See fedwin.algorithms.fedfa.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedwin import core, losses, tree
from fedwin.core import Variables
from fedwin.errors import UserError


class Epoch(NamedTuple):
    """What a client carries through local training.

    Attributes:
      anchors: A_i [C, d].
      sums: sum over the epoch's batches of the class means [C, d].
      present: batches that held a class [C].
      batches: of the epoch so far.
      adam: state of the classifier's Adam.
    """

    anchors: Any
    sums: Any
    present: Any
    batches: Any
    adam: Any


def class_membership(labels, mask, num_classes):
    """Returns [B, C]: 1 where an example is real and of a class."""
    one_hot = jax.nn.one_hot(labels, num_classes)
    return one_hot if mask is None else one_hot * mask[:, None]


def anchor_loss(features, labels, anchors, mask=None):
    """(1/C) sum_{c in batch} mean_{y_i = c} ||h_i - A[c]||^2: features [B, d], labels [B], anchors [C, d] -> []."""
    belongs = class_membership(labels, mask, anchors.shape[0])
    distance = jnp.sum((features - anchors[labels]) ** 2, -1)
    distance = distance if mask is None else jnp.where(mask > 0, distance, 0)
    return jnp.mean(distance @ belongs / jnp.maximum(jnp.sum(belongs, 0), 1))


def class_means(features, labels, num_classes, mask=None):
    """Returns (mean feature of each class in the batch, 0 if absent [C, d]; whether it is present [C])."""
    belongs = class_membership(labels, mask, num_classes)
    count = jnp.sum(belongs, 0)
    features = features if mask is None else jnp.where(mask[:, None] > 0, features, 0)
    return belongs.T @ features / jnp.maximum(count, 1)[:, None], (count > 0).astype(features.dtype)


def updated_anchors(anchors, sums, present, batches, beta, divide="all"):
    """Returns A_i after an epoch; classes that did not occur keep their row."""
    divisor = batches if divide == "all" else jnp.maximum(present, 1)[:, None]
    return jnp.where(present[:, None] > 0, beta * anchors + (1 - beta) * sums / divisor, anchors)


def calibration_loss(classifier, params, anchors):
    """(1/C) sum_c CE(classifier(A[c]), c), over all classes."""
    return jnp.mean(losses.nll(classifier(params, anchors), jnp.arange(anchors.shape[0])))


def initial_anchors(key, num_classes, width, dtype=jnp.float32):
    """Returns C distinct random rows of the identity if C <= d, else unit-norm Gaussian rows, [C, d]."""
    if num_classes <= width:
        return jnp.eye(width, dtype=dtype)[jax.random.permutation(key, width)[:num_classes]]
    rows = jax.random.normal(key, (num_classes, width), dtype)
    return rows / jnp.linalg.norm(rows, axis=1, keepdims=True)


def subtree(params, path):
    """Returns the subtree at a path of keys."""
    for name in path:
        params = params[name]
    return params


def replace_subtree(params, path, part):
    """Returns the tree with another subtree at a path of keys."""
    if not path:
        return part
    return {**params, path[0]: replace_subtree(params[path[0]], path[1:], part)}


@dataclasses.dataclass(frozen=True)
class Anchoring:
    """What anchors do in local training; the losses use the received anchors during the whole round.

    Attributes:
      model: the network, whose last layer is known.
      lam: weight of the anchor loss.
      beta: memory of the anchors.
      divide: what an epoch's class means are divided by, 'all' batches or those in which the class is 'present'.
      anchors_start: first round with the anchor loss.
      calibration_start: first round with calibration.
      adam: optimiser of the classifier.
    """

    model: Any
    lam: float
    beta: float
    divide: str
    anchors_start: int
    calibration_start: int
    adam: optax.GradientTransformation

    @property
    def path(self) -> tuple[str, ...]:
        """Where the classifier is in params."""
        return tuple(self.model.classifier_path)

    def initial(self, params, key):
        """Returns the anchors before the first round, [C, d].

        Raises:
          UserError: when the classifier is not one dense layer.
        """
        kernels = [leaf for leaf in jax.tree.leaves(subtree(params, self.path)) if leaf.ndim == 2]
        if len(kernels) != 1:
            raise UserError("fedfa: the classifier must be one dense layer.")
        width, dtype = kernels[0].shape[0], kernels[0].dtype
        return initial_anchors(jax.random.fold_in(key, 1), self.model.num_classes, width, dtype)

    def features(self, params, stats, batch, key):
        """Returns h of a batch, [B, d]."""
        return self.model.apply(Variables(params, stats), batch, key, True).features

    def loss(self, base, anchors, round):
        """Returns the local loss `base` with the anchor loss on top."""

        def loss(params, stats, batch, key, info):
            value, new_stats = base(params, stats, batch, key, info)
            # The same forward pass as inside `base`: the compiler makes it one.
            pull = anchor_loss(self.features(params, stats, batch, key), batch["y"], anchors, batch.get("mask"))
            return value + jnp.where(round >= self.anchors_start, self.lam, 0.0) * pull, new_stats

        return loss

    def calibrated(self, params, state, anchors, round):
        """Returns (params after one Adam step of the classifier alone, Adam's state); unchanged before the start."""
        layer = subtree(params, self.path)
        value = lambda layer: calibration_loss(
            self.model.classifier, replace_subtree(params, self.path, layer), anchors
        )
        updates, new_state = self.adam.update(jax.grad(value)(layer), state, layer)
        now = round >= self.calibration_start
        layer = tree.where(now, tree.add(layer, updates), layer)
        return replace_subtree(params, self.path, layer), tree.where(now, new_state, state)

    def begin(self, params, anchors) -> Epoch:
        """Returns what local training starts to carry."""
        zero = jnp.zeros((), anchors.dtype)
        return Epoch(anchors, 0 * anchors, 0 * anchors[:, 0], zero, self.adam.init(subtree(params, self.path)))

    def on_step(self, anchors, c: core.Client):
        """Returns the hook that follows every local step."""

        def on_step(carry: Epoch, new, s, last):
            # Features of the model that the step started from, as its loss saw them.
            features, labels = self.features(s.params, c.stats, s.batch, s.key), s.batch["y"]
            means, present = class_means(features, labels, self.model.num_classes, s.batch.get("mask"))
            new, adam = self.calibrated(new, carry.adam, anchors, c.round)
            sums, present, batches = carry.sums + means, carry.present + present, carry.batches + 1
            ends = last | (s.j + 1 >= s.steps)
            moved = updated_anchors(carry.anchors, sums, present, batches, self.beta, self.divide)
            kept = jnp.where(ends, 0, 1)
            carried = jnp.where(ends, moved, carry.anchors)
            return Epoch(carried, sums * kept, present * kept, batches * kept, adam), new

        return on_step
