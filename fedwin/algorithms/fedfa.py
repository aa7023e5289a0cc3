"""FedFA: feature anchors, one per class, keep the clients' feature extractors and classifiers consistent.

    client   L = loss + lam (1/C) sum_{c in batch} mean_{y_i = c} ||h_i - A[c]||^2        from round `anchor_from`
             after each step, from round `calibrate_from`: one Adam step of the classifier alone on
                 (1/C) sum_c CE(classifier(A[c]), c)
             after each epoch, for the client's own classes:
                 A_i[c] <- beta A_i[c] + (1 - beta) (1/batches) sum_batches mean_{y_i = c} h_i
    server   x <- x + eta sum_i p_i (y_i - x),   A <- sum_i p_i A_i

h is the input of the last layer. The losses use the received A during the whole round. Averages over rounds (IMA,
WIMA) leave the anchors out.

Zhou et al., FedFA: Federated Learning with Feature Anchors to Align Features and Classifiers for Heterogeneous Data,
2023, https://arxiv.org/abs/2211.09299.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedwin import core, losses, tree
from fedwin.algorithms import hyper
from fedwin.algorithms.registry import ALGORITHMS
from fedwin.core import Variables
from fedwin.errors import UserError
from fedwin.schedules import first_round


class Epoch(NamedTuple):
    """What a client carries through local training.

    anchors: A_i [C, d]; sums: sum over the epoch's batches of the class means [C, d]; present: batches that held a
    class [C]; batches: of the epoch so far; adam: state of the classifier's Adam.
    """

    anchors: Any
    sums: Any
    present: Any
    batches: Any
    adam: Any


def members(labels, mask, num_classes):
    """Returns [B, C]: 1 where an example is real and of a class."""
    one_hot = jax.nn.one_hot(labels, num_classes)
    return one_hot if mask is None else one_hot * mask[:, None]


def anchor_loss(features, labels, anchors, mask=None):
    """(1/C) sum_{c in batch} mean_{y_i = c} ||h_i - A[c]||^2: features [B, d], labels [B], anchors [C, d] -> []."""
    belongs = members(labels, mask, anchors.shape[0])
    distance = jnp.sum((features - anchors[labels]) ** 2, -1)
    distance = distance if mask is None else jnp.where(mask > 0, distance, 0)
    return jnp.mean(distance @ belongs / jnp.maximum(jnp.sum(belongs, 0), 1))


def class_means(features, labels, num_classes, mask=None):
    """Returns (mean feature of each class in the batch, 0 if absent [C, d]; whether it is present [C])."""
    belongs = members(labels, mask, num_classes)
    count = jnp.sum(belongs, 0)
    features = features if mask is None else jnp.where(mask[:, None] > 0, features, 0)
    return belongs.T @ features / jnp.maximum(count, 1)[:, None], (count > 0).astype(features.dtype)


def moved_anchors(anchors, sums, present, batches, beta, divide="all"):
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


def _below(params, path):
    for name in path:
        params = params[name]
    return params


def _replaced(params, path, part):
    if not path:
        return part
    return {**params, path[0]: _replaced(params[path[0]], path[1:], part)}


@ALGORITHMS.register(
    "fedfa",
    paper="zhou2023fedfa",
    instances=("fedfa", "fedfa:calibrate_from=0,divide=present"),
    degenerate={"lam": 0, "calibrate_lr": 0},
    down="1 + C d numbers",
    up="1 + C d numbers",
    server="1 + C d",
    client="0",
)
def fedfa(
    setting,
    solve,
    *,
    lam=0.1,
    beta=0.5,
    anchor_from=1,
    calibrate_from=None,
    calibrate_lr=1e-3,
    divide="all",
    server_lr=1.0,
    weighting="samples",
):
    """FedFA: loss + lam anchor loss, classifier calibrated on the anchors, anchors averaged like the model.

    Args:
      lam: weight of the anchor loss.
      beta: memory of the anchors; 1 freezes them.
      anchor_from: first round (0-based, or a fraction of the rounds) with the anchor loss; 0 in FedFA's repository.
      calibrate_from: first round with calibration; none = the first round after a quarter of the run.
      calibrate_lr: learning rate of the classifier's Adam.
      divide: an epoch's class means are divided by 'all' batches or by those in which the class is 'present'.

    Raises UserError for a hyper-parameter out of range, or a model whose last layer can't be told apart.
    https://arxiv.org/abs/2211.09299.
    """
    hyper.common("fedfa", server_lr, weighting)
    hyper.number("fedfa", 0, lam=lam, calibrate_lr=calibrate_lr, anchor_from=anchor_from)
    if calibrate_from is not None:
        hyper.number("fedfa", 0, calibrate_from=calibrate_from)
    hyper.number("fedfa", 0, 1, beta=beta)
    hyper.one_of("fedfa", "divide", divide, ("all", "present"))
    anchors_start = first_round(anchor_from, setting.num_rounds, "fedfa")
    quarter = setting.num_rounds // 4 + 1
    calibration_start = quarter if calibrate_from is None else first_round(calibrate_from, setting.num_rounds, "fedfa")
    model = setting.model
    if model is None or model.classifier is None:
        raise UserError("fedfa: the model must tell its last layer apart from its features; choose another model.")
    path, num_classes = tuple(model.classifier_path), model.num_classes
    adam = optax.adam(calibrate_lr)

    def init(params, key):
        kernels = [leaf for leaf in jax.tree.leaves(_below(params, path)) if leaf.ndim == 2]
        if len(kernels) != 1:
            raise UserError("fedfa: the classifier must be one dense layer.")
        return initial_anchors(jax.random.fold_in(key, 1), num_classes, kernels[0].shape[0], kernels[0].dtype)

    def client(down, c):
        if c.examples["y"].ndim > 1:
            raise UserError(
                "fedfa: anchors belong to classes, one label per example; sequences need another algorithm."
            )
        params, anchors = down

        def features(params, stats, batch, key):
            return model.apply(Variables(params, stats), batch, key, True).features

        def loss(params, stats, batch, key, info):
            value, new_stats = solve.loss(params, stats, batch, key, info)
            # The same forward pass as inside solve.loss: the compiler makes it one.
            pull = anchor_loss(features(params, stats, batch, key), batch["y"], anchors, batch.get("mask"))
            return value + jnp.where(c.round >= anchors_start, lam, 0.0) * pull, new_stats

        def calibrate(params, state):
            layer = _below(params, path)
            value = lambda layer: calibration_loss(model.classifier, _replaced(params, path, layer), anchors)
            updates, new_state = adam.update(jax.grad(value)(layer), state, layer)
            now = c.round >= calibration_start
            layer = tree.where(now, tree.add(layer, updates), layer)
            return _replaced(params, path, layer), tree.where(now, new_state, state)

        def on_step(carry: Epoch, new, s, last):
            # Features of the model that the step started from, as its loss saw them.
            means, present = class_means(
                features(s.params, c.stats, s.batch, s.key), s.batch["y"], num_classes, s.batch.get("mask")
            )
            new, adam_state = calibrate(new, carry.adam)
            sums, present, batches = carry.sums + means, carry.present + present, carry.batches + 1
            ends = last | (s.j + 1 >= s.steps)
            moved = jnp.where(ends, moved_anchors(carry.anchors, sums, present, batches, beta, divide), carry.anchors)
            kept = jnp.where(ends, 0, 1)
            return Epoch(moved, sums * kept, present * kept, batches * kept, adam_state), new

        zero = jnp.zeros((), anchors.dtype)
        carry = Epoch(anchors, 0 * anchors, 0 * anchors[:, 0], zero, adam.init(_below(params, path)))
        y = dataclasses.replace(solve, loss=loss)(params, c, carry=carry, on_step=on_step)
        weight = core.weight(c, weighting)
        message = {
            "delta": core.mean(tree.sub(y.params, params), weight),
            "anchors": core.mean(y.carry.anchors, weight),
        }
        return core.Update(message, stats=y.stats, metrics=y.metrics)

    def server(params, anchors, total, round):
        return tree.axpy(server_lr, total["delta"].value, params), total["anchors"].value

    return core.algorithm(client, server, broadcast=lambda params, a: (params, a), init=init, weighting=weighting)
