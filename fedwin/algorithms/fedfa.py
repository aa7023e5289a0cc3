"""FedFA: feature anchors, one per class, align the clients' feature extractors and classifiers.

h is the input of the last layer. The losses use the received A during the whole round. Averages over rounds (IMA,
WIMA) do not include the anchors. By default, the losses begin in the rounds of IMA's code, later than in FedFA's.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedwin import core, local, losses, tree
from fedwin.algorithms import common
from fedwin.algorithms.registry import ALGORITHMS, facts
from fedwin.errors import UserError
from fedwin.models.adapters.classifier import subtree
from fedwin.models.model import Model
from fedwin.registry.ranges import NonNegative, Positive, Share
from fedwin.schedules import Start, first_round
from fedwin.tree import PyTree


class Epoch(NamedTuple):
    """State that a client carries through local training.

    Attributes:
      anchors: A_i [C, d].
      sums: sum over the epoch's batches of the class means [C, d].
      present: number of batches that contained a class [C].
      batches: number of batches of the epoch so far, [].
      adam: state of the classifier's Adam.
    """

    anchors: jax.Array
    sums: jax.Array
    present: jax.Array
    batches: jax.Array
    adam: PyTree


def class_membership(labels, mask, num_classes):
    """Returns 1 where an example is real (mask [B]; None: all are) and of a class, else 0, float [B, C]."""
    one_hot = jax.nn.one_hot(labels, num_classes)
    return one_hot if mask is None else one_hot * mask[:, None]


def anchor_loss(features, labels, anchors, mask=None):
    """Computes the anchor loss of a batch.

        (1/C) sum_{c in batch} mean_{y_i = c} ||h_i - A[c]||^2

    Args:
      features: h [B, d].
      labels: y, int [B].
      anchors: A [C, d].
      mask: 1 for real examples [B]; None: all are real.

    Returns:
      float [].

    Example:
      >>> import numpy as np
      >>> float(anchor_loss(np.ones((2, 3)), np.array([0, 1]), np.zeros((2, 3))))
      3.0
    """
    membership = class_membership(labels, mask, anchors.shape[0])
    distance = jnp.sum((features - anchors[labels]) ** 2, -1)
    distance = distance if mask is None else jnp.where(mask > 0, distance, 0)
    return jnp.mean(distance @ membership / jnp.maximum(jnp.sum(membership, 0), 1))


def class_means(features, labels, num_classes, mask=None):
    """Computes the mean feature of every class in a batch; arguments as for `anchor_loss`.

    Returns:
      (means [C, d], 0 for absent classes; 1 for present classes, else 0 [C]).
    """
    membership = class_membership(labels, mask, num_classes)
    count = jnp.sum(membership, 0)
    features = features if mask is None else jnp.where(mask[:, None] > 0, features, 0)
    return membership.T @ features / jnp.maximum(count, 1)[:, None], (count > 0).astype(features.dtype)


def with_batch(epoch: Epoch, means, present, ends, beta, divide) -> Epoch:
    """Returns the state after a batch, the last one of its epoch if `ends`, given its `class_means`.

    At the end of an epoch, A_i changes as in `fedfa`; a class that no batch contained keeps its row.
    """
    sums, present, batches = epoch.sums + means, epoch.present + present, epoch.batches + 1
    divisor = batches if divide == "all" else jnp.maximum(present, 1)[:, None]
    moved = jnp.where(present[:, None] > 0, beta * epoch.anchors + (1 - beta) * sums / divisor, epoch.anchors)
    anchors, keep = jnp.where(ends, moved, epoch.anchors), jnp.where(ends, 0, 1)
    return Epoch(anchors, sums * keep, present * keep, batches * keep, epoch.adam)


def calibration_loss(classifier: Callable, params, anchors):
    """Computes the cross-entropy of the classifier, (params, h) -> logits, on the anchors of all classes, float []."""
    return jnp.mean(losses.nll(classifier(params, anchors), jnp.arange(anchors.shape[0])))


def initial_anchors(model: Model, params, key):
    """Draws C distinct random rows of the identity matrix if C <= d, else Gaussian rows of unit norm, [C, d].

    Raises:
      UserError: the classifier is not one dense layer.
    """
    kernels = [leaf for leaf in jax.tree.leaves(subtree(params, model.classifier_path)) if leaf.ndim == 2]
    if len(kernels) != 1:
        raise UserError("fedfa: the classifier must be one dense layer.")
    key, num_classes = jax.random.fold_in(key, 1), model.num_classes
    width, dtype = kernels[0].shape[0], jnp.promote_types(kernels[0].dtype, jnp.result_type(float))
    if num_classes <= width:
        return jnp.eye(width, dtype=dtype)[jax.random.permutation(key, width)[:num_classes]]
    rows = jax.random.normal(key, (num_classes, width), dtype)
    return rows / jnp.linalg.norm(rows, axis=1, keepdims=True)


def replace_subtree(params, path: Sequence[str], part):
    """Returns nested dicts with the part at a path of keys replaced.

    >>> replace_subtree({"a": {"b": 1, "c": 2}}, ("a", "b"), 3)
    {'a': {'b': 3, 'c': 2}}
    """
    if not path:
        return part
    return {**params, path[0]: replace_subtree(params[path[0]], path[1:], part)}


def calibrated(model, adam, params, state, anchors):
    """Takes an Adam step of the classifier alone on its `calibration_loss`; returns (params, Adam's state)."""
    path = tuple(model.classifier_path)
    layer = subtree(params, path)
    value = lambda layer: calibration_loss(model.classifier, replace_subtree(params, path, layer), anchors)
    updates, state = adam.update(jax.grad(value)(layer), state, layer)
    return replace_subtree(params, path, tree.add(layer, updates)), state


@ALGORITHMS.register(
    "fedfa",
    paper="zhou2023fedfa",
    instances=("fedfa", "fedfa:calibrate_from=0,divide=present"),
    degenerate={"lam": 0, "calibrate_lr": 0},
    warmup_horizon="anchor_from",
    **facts(down="1 + C d numbers", up="1 + C d numbers", server="1 + C d"),
)
def fedfa(
    setting: core.Setting,
    solve: local.Solver,
    *,
    lam: NonNegative = 0.1,
    beta: Share = 0.5,
    anchor_from: Start = 1,
    calibrate_from: Start | None = None,
    calibrate_lr: NonNegative = 1e-3,
    divide: Literal["all", "present"] = "all",
    server_lr: Positive = 1.0,
    weighting: common.Weighting = "samples",
) -> core.Algorithm:
    """FedFA: loss + lam anchor loss, classifier calibrated on the anchors, anchors averaged like the model.

        client  L = loss + lam (1/C) sum_{c in batch} mean_{y_i = c} ||h_i - A[c]||^2       from round `anchor_from`
                after each step, from round `calibrate_from`: one Adam step of the classifier alone on
                    (1/C) sum_c CE(classifier(A[c]), c)
                after each epoch, for the client's own classes:
                    A_i[c] <- beta A_i[c] + (1 - beta) (1/batches) sum_batches mean_{y_i = c} h_i
        server  x <- x + server_lr sum_i p_i (y_i - x),   A <- sum_i p_i A_i

    Args:
      lam: weight of the anchor loss.
      beta: memory of the anchors; 1 keeps them constant.
      anchor_from: first round (0-based, or a fraction of the rounds) with the anchor loss; 0 in FedFA's repository.
      calibrate_from: first round with calibration, 0 in FedFA's repository; none = after a quarter of the rounds.
      calibrate_lr: learning rate of the classifier's Adam.
      divide: divisor of an epoch's class means: 'all' batches, or those in which the class is 'present'.

    Raises:
      UserError: when the model's last layer is unknown.

    Source: Zhou et al., FedFA: Federated Learning with Feature Anchors to Align Features and Classifiers for
    Heterogeneous Data, 2023, https://arxiv.org/abs/2211.09299.

    Example:
      >>> from fedwin import testing
      >>> testing.run_rounds("fedfa:lam=0.1", problem=testing.classification())
      {'model': [0.777, 0.507, 0.365]}
    """
    anchors_start = first_round(anchor_from, setting.num_rounds, "fedfa")
    quarter = setting.num_rounds // 4 + 1
    calibration_start = quarter if calibrate_from is None else first_round(calibrate_from, setting.num_rounds, "fedfa")
    if setting.model is None or setting.model.classifier is None:
        raise UserError("fedfa: the model must name its last layer; choose another model.")
    model, adam = setting.model, optax.adam(calibrate_lr)

    def client(down, c):
        losses.check_one_class(c.examples["y"], "fedfa", "choose another --algorithm")
        params, anchors = down  # the losses use these anchors during the whole round; A_i changes in the carry alone
        calibrates = c.round >= calibration_start

        def term(output, batch):
            value = anchor_loss(output.features, batch["y"], anchors, batch.get("mask"))
            return jnp.where(c.round >= anchors_start, lam, 0.0) * value

        def on_step(epoch: Epoch, y, s, last):
            # Features of the model before the step, as its loss used them.
            features = model.apply(core.Variables(s.params, c.stats), s.batch, s.key, True).features
            means, present = class_means(features, s.batch["y"], model.num_classes, s.batch.get("mask"))
            ends = last | (s.j + 1 >= s.steps)
            epoch = with_batch(epoch, means, present, ends, beta, divide)
            y, state = tree.where(calibrates, calibrated(model, adam, y, epoch.adam, anchors), (y, epoch.adam))
            return epoch._replace(adam=state), y

        anchored = dataclasses.replace(solve, loss=losses.with_term(solve.loss, model, term))
        zero, zeros = jnp.zeros((), anchors.dtype), jnp.zeros_like(anchors)
        first = Epoch(anchors, zeros, zeros[:, 0], zero, adam.init(subtree(params, model.classifier_path)))
        y = anchored(params, c, carry=first, on_step=on_step)
        message = {
            "delta": common.weighted_delta(y, params, c, weighting),
            "anchors": core.mean(y.carry.anchors, core.aggregation_weight(c, weighting)),
        }
        return y.update(message)

    def server(params, anchors, total, round):
        return common.add_mean_step(params, total, server_lr), total["anchors"].value

    return core.algorithm(
        client,
        server,
        broadcast=lambda params, anchors: (params, anchors),
        init=lambda params, key: initial_anchors(model, params, key),
        weighting=weighting,
    )
